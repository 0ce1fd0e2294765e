fitted_once <- local({
  fit <- NULL
  function() {
    skip_without_python()
    if (is.null(fit)) {
      fit <<- dp_ate(y ~ t | age + region, people(), epsilon = 5, bounds = BOUNDS, seed = 1)
    }
    fit
  }
})

test_that("methods of R agree with the result in Python", {
  fit <- fitted_once()
  expect_identical(coef(fit), c(t = fit$estimate))
  expect_identical(unname(confint(fit)[1, ]), fit$conf_int())
  expect_identical(unname(confint(fit, level = 0.9)[1, ]), fit$conf_int(0.9))
  expect_identical(colnames(confint(fit, level = 0.9)), c("5 %", "95 %"))
  expect_equal(vcov(fit)[["t", "t"]], fit$std_error^2)
  expect_identical(nobs(fit), 600L)
  row <- tidy(fit)
  expect_identical(row$estimate, fit$estimate)
  expect_identical(row$std.error, fit$std_error)
  expect_false("conf.low" %in% names(tidy(fit, conf.int = FALSE)))
  expect_identical(as.data.frame(fit), row)
  expect_identical(glance(fit)$nobs, 600L)
  expect_match(glance(fit)$guarantee, "seeded")
})

test_that("tidy() is that of generics, whatever is attached", {
  fit <- fitted_once()
  skip_if_not_installed("generics")
  expect_identical(generics::tidy(fit), tidy(fit))
  expect_identical(generics::glance(fit), glance(fit))
  skip_if_not_installed("broom")
  requireNamespace("broom")
  line <- lm(dist ~ speed, cars)
  expect_identical(tidy(line), generics::tidy(line))
})

test_that("results are printed, drawn and written", {
  fit <- fitted_once()
  expect_output(print(fit), "NOT PRIVATE")
  expect_output(print(summary(fit)), "Privacy budget")
  expect_match(paste(toLatex(fit), collapse = "\n"), "toprule")
  skip_if_not_installed("knitr")
  expect_match(as.character(knitr::knit_print(fit)), "|")
})

test_that("parts and methods of Python have arguments and values of R", {
  fit <- fitted_once()
  expect_s3_class(fit$means, "data.frame")
  expect_identical(fit$means$arm, c("treated", "control"))
  expect_type(fit$test(null = 0.5, alternative = "less")$p_value, "double")
  expect_s3_class(fit$sensitivity(bias = 0.1), "dpeffects_result")
  expect_identical(dpe()$Result$from_json(fit$to_json())$estimate, fit$estimate)
  noise <- dp_ate(y ~ t, people(), "diff_in_means", epsilon = 5, bounds = BOUNDS["y"],
                  variance = FALSE, design = "randomised", seed = 1)
  expect_true(is.na(noise$std_error))
  expect_match(attr(noise$std_error, "reason"), "not available")
})

test_that("several effects have a row each, and no covariances", {
  skip_without_python()
  fit <- dp_ate(
    y ~ t | age, people(),
    epsilon = 9, bounds = BOUNDS, seed = 1, by = list(young = ~ age < 50, old = ~ age >= 50)
  )
  expect_identical(names(coef(fit)), c("young", "old"))
  expect_identical(dim(confint(fit, "old")), c(1L, 2L))
  expect_identical(is.na(unname(vcov(fit))), !diag(TRUE, 2))
})

test_that("plots fill the device, in its size and resolution", {
  fit <- fitted_once()
  skip_if_not(reticulate::py_module_available("matplotlib"))
  skip_if_not_installed("png")
  file <- tempfile(fileext = ".png")
  grDevices::png(file, 600, 300, res = 90)
  expect_identical(plot(fit, main = "An effect"), fit)
  grDevices::dev.off()
  drawn <- png::readPNG(file)
  expect_identical(dim(drawn)[1:2], c(300L, 600L))
  ink <- drawn[, , 1] < 0.9
  expect_gt(sum(ink), 500)
  expect_gt(diff(range(which(rowSums(ink) > 0))), 200) # from top to bottom
  expect_gt(diff(range(which(colSums(ink) > 0))), 450)
  levels <- lapply(c(0.5, 0.95), function(level) {
    grDevices::pdf(NULL, 5, 3)
    on.exit(grDevices::dev.off())
    graphics::par(mar = c(0, 0, 0, 0))
    graphics::plot.new()
    picture(fit$plot(conf_level = level))
  })
  expect_identical(dim(levels[[1]]), c(900L, 1500L))
  expect_false(identical(levels[[1]], levels[[2]]))
  expect_error(plot(dp_reference(y ~ t, people(), bounds = BOUNDS), nothing = 1), "nothing|no plot")
})

test_that("tables of a result are those of Python", {
  fit <- fitted_once()
  if (reticulate::py_has_attr(fit, "table")) {
    expect_output(print(as_table(fit)), "t")
    expect_match(as_table(fit)$as_latex(), "tabular")
  } else {
    expect_error(as_table(fit), "table", class = "dpeffects_error")
  }
})
