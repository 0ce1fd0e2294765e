# A stand-in of an office on this machine, which the tests of the Python package have
standin <- new.env()
TOKEN <- "a-very-secret-token"

registry <- function() {
  skip_without_python()
  there <- reticulate::py_module_available("tests.office.standin")
  if (!there) skip("the tests of the Python package are not there")
  if (is.null(standin$port)) {
    place <- tempfile()
    call <- c("-m", "tests.office.standin", shQuote(place), Sys.getpid())
    system2(reticulate::py_config()$python, call, wait = FALSE, stdout = FALSE, stderr = FALSE)
    for (i in 1:600) if (!file.exists(place)) Sys.sleep(0.1)
    standin$port <- readLines(place, warn = FALSE)
  }
  dp_connect(paste0("http://127.0.0.1:", standin$port), TOKEN)$registry
}

test_that("a data set of an office stands for a data frame", {
  data <- registry()
  fit <- dp_ate(y ~ t | x, data, epsilon = 2, design = "randomised")
  expect_s3_class(fit, "dpeffects_result")
  expect_identical(nobs(fit), 400L)
  expect_identical(coef(fit), coef(dp_ate("y ~ t | x", data, epsilon = 2, design = "randomised")))
  expect_identical(nrow(tidy(dp_cate(y ~ t | region, data, release = "groups", by = region, epsilon = 2))), 2L)
  expect_output(print(dp_survival(Surv(time, event) ~ t, data, horizon = 60, epsilon = 2)), "60")
  expect_identical(nrow(requests(data)), 3L)
})

test_that("what an office says is in data frames", {
  data <- registry()
  book <- codebook(data)
  expect_identical(book$column, c("y", "t", "x", "region", "time", "event"))
  expect_identical(book$values[4], "N, S")
  expect_identical(budget(data)$left[1], 4)
  records <- made_up(data, 50)
  expect_identical(dim(as.data.frame(records)), c(50L, 6L))
  expect_s3_class(dp_ate(y ~ t, records, epsilon = 1, design = "randomised"), "dpeffects_result")
  plan <- dp_plan(y ~ t, data, epsilon = 1, method = "diff_in_means", repeats = 1)
  expect_identical(tidy(plan)$method, "diff_in_means")
  expect_output(print(data), "400 records")
})

test_that("what an office does not do is one message", {
  data <- registry()
  waits <- expect_error(dp_ate(y ~ t, data, epsilon = 1.5), class = "PendingError")
  expect_match(conditionMessage(waits), "dataset$request('", fixed = TRUE)
  expect_error(dp_ate(y ~ t, data, epsilon = 9), "Nothing was paid", class = "RefusalError")
  expect_error(dp_ate(y ~ t, data, epsilon = 1, seed = 1), "seed cannot be given")
  expect_error(dp_ate(y ~ t, data, epsilon = 1, bounds = list(y = c(0, 1))), "bounds cannot be")
  expect_error(codebook(people()), "is for a data set of an office")
  office <- dp_connect(paste0("http://127.0.0.1:", standin$port), TOKEN)
  expect_error(office$other, "no dataset 'other'")
  expect_output(print(office), "registry")
  wrong <- expect_error(dp_connect(paste0("http://127.0.0.1:", standin$port), "wrong-token"))
  expect_match(conditionMessage(wrong), "the token is not known")
  expect_false(grepl("wrong-token", conditionMessage(wrong)))
  expect_error(dp_connect("http://office.example", TOKEN), "begins with https://")
})
