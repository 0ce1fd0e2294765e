test_that("every call runs from R", {
  skip_without_python()
  df <- people()
  trial <- function(call, formula, ..., bounds = BOUNDS) {
    fit <- call(formula, df, ..., epsilon = 5, bounds = bounds, seed = 1)
    expect_s3_class(fit, "dpeffects_result")
    expect_s3_class(tidy(fit), "data.frame")
    expect_output(print(fit))
    fit
  }
  for (call in list(dp_ate, dp_att, dp_atc)) trial(call, y ~ t | age + name, missing = "indicator")
  trial(dp_balance, y ~ t | age + region)
  trial(dp_cate, y ~ t | age, release = "groups", by = ~region)
  trial(dp_cate, y ~ t | age, delta = 1e-6)
  trial(dp_study, cbind(y, visits) ~ t | age, subgroups = "region", design = "randomised")
  trial(dp_moments, y ~ t | age + visits)
  trial(dp_qte, y ~ t, quantiles = c(0.25, 0.5), design = "randomised")
  df$event <- df$visits > 2
  trial(dp_survival, Surv(age - 17, event) ~ t, horizon = 60, bins = 6)
  trial(dp_rate, visits ~ t, offset = ~age, design = "randomised")
  trial(dp_ordinal, region ~ t, design = "randomised")
  df$z <- df$t
  df$z[1:100] <- FALSE
  trial(dp_late, y ~ z, instrument = ~t, design = "randomised")
  df$earlier <- rev(df$y)
  trial(dp_did, y ~ t, before = "earlier", bounds = c(BOUNDS, list(earlier = c(0, 1))))
  trial(dp_multisite, y ~ t, site = ~region, sites = c("N", "S", "E"), design = "randomised")
  trial(dp_randomisation_test, event ~ t, treated = 300)
  expect_output(print(dp_reference(y ~ t | age, df, bounds = BOUNDS)), "NOT PRIVATE")
})

test_that("data are declared once, and rows stay in Python", {
  skip_without_python()
  df <- people()
  fit <- dp_ate(y ~ t | age + day, dp_declare(df, BOUNDS), epsilon = 2, seed = 1)
  again <- dp_ate("y ~ t | age + day", df, epsilon = 2, bounds = BOUNDS, seed = 1)
  expect_identical(coef(fit), coef(again))
  nsw <- load_data("lalonde")
  expect_identical(dim(as.data.frame(nsw)), c(445L, 10L))
  visits <- dp_simulate("repeated", n = 500, seed = 1)
  fit <- dp_ate(
    outcome ~ treatment | x1, visits,
    epsilon = 2, unit = ~person, max_rows = 5, seed = 1
  )
  expect_identical(nobs(fit), fit$n)
})

test_that("a ledger is charged, and refuses", {
  skip_without_python()
  place <- tempfile()
  ledger <- create_ledger(place, "trial", epsilon = 1)
  dp_ate(y ~ t, people(), epsilon = 0.75, bounds = BOUNDS["y"], ledger = ledger)
  expect_equal(open_ledger(place, "trial")$remaining, c(0.25, 0))
  refused <- expect_error(
    dp_ate(y ~ t, people(), epsilon = 0.5, bounds = BOUNDS["y"], ledger = ledger),
    class = "BudgetError"
  )
  expect_false(grepl("Traceback|\n", conditionMessage(refused)))
})

test_that("warnings of Python are warnings of R", {
  skip_without_python()
  fit <- dp_cate(y ~ t | age, people(), epsilon = 9, delta = 1e-6, bounds = BOUNDS, seed = 1)
  expect_warning(found <- fit$effect(data.frame(age = c(20, 95))), "1 value of 'age' outside")
  expect_length(found, 2)
  expect_silent(fit$effect(list(age = c(20, 90))))
})

test_that("plans and methods are tables", {
  skip_without_python()
  known <- BOUNDS[c("y", "age")]
  plan <- dp_plan(y ~ t | age, n = 2000, epsilon = 1, bounds = known, method = "auto")
  expect_identical(tidy(plan)$method, "auto")
  expect_true("one_step" %in% dp_methods()$method)
  expect_output(dp_help("dp_ate"), "epsilon")
  shown <- paste(capture.output(dp_help("dp_ate")), collapse = "\n")
  expect_false(grepl("None|True|False|::|>>>|\\{\"", shown))
})

test_that("mistakes are one message", {
  skip_without_python()
  df <- people()
  message_of <- function(...) {
    conditionMessage(expect_error(dp_ate(...), class = "dpeffects_error"))
  }
  expect_match(message_of(y ~ t | nothing, df, epsilon = 1, bounds = BOUNDS), "'nothing'")
  expect_match(message_of(y ~ t + age, df, epsilon = 1, bounds = BOUNDS), "exactly one expression")
  expect_match(message_of(y ~ t | scale(age), df, epsilon = 1, bounds = BOUNDS), "scale")
  expect_match(message_of(y ~ t, df, bounds = BOUNDS), "epsilon")
  expect_match(message_of(y ~ t, df, epsilon = -1, bounds = BOUNDS), "epsilon")
  told <- message_of(y ~ t | region, df, epsilon = 1, bounds = BOUNDS["y"])
  expect_match(told, 'bounds = list(region = c("LEVEL", "LEVEL"))', fixed = TRUE)
  told <- message_of(y ~ t | name, df, epsilon = 1, bounds = BOUNDS)
  expect_match(told, 'missing = list(name = "complete")', fixed = TRUE)
  expect_match(message_of(y ~ t, df, epsilon = 1, bounds = list(y = c(1, 0))), "lower")
  expect_match(message_of(y ~ t, df, epsilon = NA), "NA")
  told <- message_of(y ~ t, df, epsilon = 1, bounds = BOUNDS, subset = df$age > 40)
  expect_match(told, "subset = age > 40", fixed = TRUE)
  told <- message_of(y ~ t, df, epsilon = 1, bounds = BOUNDS, weights = 1:600)
  expect_match(told, "weights = village", fixed = TRUE)
  expect_match(message_of(y ~ t, df, epsilon = 1, bounds = BOUNDS, cluster = nowhere), "'nowhere'")
  expect_error(dp_ate(y ~ t, df, epsilon = stop("mine")), "mine")
})

test_that("columns are named as lm names them", {
  skip_without_python()
  df <- people()
  df$c <- df$visits # the name of a function, too
  bounds <- c(BOUNDS, list(c = c(0, 4)))
  found <- function(...) {
    tidy(dp_ate(y ~ t, df, ..., epsilon = 5, bounds = bounds, seed = 1, design = "randomised"))
  }
  from <- 40
  chosen <- c("N", "E")
  wanted <- found(subset = "age > 40 & region in ['N', 'E']")
  expect_identical(found(subset = age > 40 & region %in% c("N", "E")), wanted)
  expect_identical(found(subset = ~ age > 40 & region %in% c("N", "E")), wanted)
  expect_identical(found(subset = age > from & region %in% chosen), wanted)
  expect_identical(found(subset = ~ age > from & region %in% chosen), wanted)
  expect_false(identical(found(subset = age > 41), found(subset = age > from)))
  expect_identical(found(weights = visits), found(weights = "visits"))
  expect_identical(found(weights = ~visits), found(weights = "visits"))
  expect_identical(found(weights = c), found(weights = "c"))
  expect_identical(found(cluster = region), found(cluster = "region"))
  named <- "region"
  expect_identical(found(cluster = named), found(cluster = "region"))
  expect_identical(found(cluster = NULL), found())
  wanted <- found(by = "region + cut(age, [18, 40, 90])")
  expect_identical(found(by = ~ region + cut(age, c(18, 40, 90))), wanted)
  expect_identical(found(by = region), found(by = "region"))
  groups <- found(by = list(young = "age < 40", old = "age >= 40"))
  expect_identical(found(by = list(young = age < from, old = ~ age >= from)), groups)
  expect_identical(groups$term, c("young", "old"))
  declared <- dp_declare(df, bounds)
  fit <- dp_ate(y ~ t, declared, epsilon = 5, seed = 1, design = "randomised", cluster = region)
  expect_identical(tidy(fit), found(cluster = "region"))
  wrapped <- function(...) dp_ate(y ~ t, df, ..., epsilon = 5, bounds = bounds, seed = 1)
  expect_identical(
    coef(wrapped(design = "randomised", subset = age > 40)),
    coef(wrapped(design = "randomised", subset = "age > 40"))
  )
})
