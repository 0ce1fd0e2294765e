# Mistakes that users make, and what the message has to say and must not say. Python's words around
# the advice may change; the advice is in the syntax of R.
mistakes <- function() {
  df <- people()
  df$sex <- c("f", "m")[seq_len(600) %% 2 + 1]
  df$event <- as.integer(df$visits > 2)
  try_ate <- function(formula, ..., bounds = BOUNDS, epsilon = 1) {
    dp_ate(formula, df, ..., epsilon = epsilon, bounds = bounds)
  }
  fit <- try_ate(y ~ t | age, epsilon = 5, seed = 1, design = "randomised")
  c01 <- list(y = c(0, 1))
  list(
    list(quote(try_ate(y ~ t | region, bounds = c01)), "bounds = list(region = c("),
    list(quote(try_ate(y ~ t, epsilon = "1")), "epsilon = 1"),
    list(quote(try_ate(y ~ t | name)), "missing = list(name = \"complete\")"),
    list(quote(try_ate(y ~ t, randomised = TRUE)), "design = \"randomised\""),
    list(quote(try_ate(y ~ t, alpha = 0.05)), "confint(fit, level = 0.9)"),
    list(quote(try_ate(y ~ t, na.rm = TRUE)), "na.rm"),
    list(quote(try_ate(y ~ t | poly(age, 2))), "I(x^2)"),
    list(quote(try_ate(y ~ t | ns(age, 3))), "Boundary.knots = c("),
    list(quote(try_ate(y ~ t | relevel(region, "N"))), "factor(x, levels = c("),
    list(quote(try_ate(y ~ t * age)), "factor(t, levels = c("),
    list(quote(try_ate(y ~ t, subset = "age > 40 && sex == 'f'")), "&"),
    list(quote(try_ate(y ~ t, subset = "isna(age)")), "is.na(x)"),
    list(quote(try_ate(y ~ t, bounds = list(y = c("0", "1")))), "write numbers without quotes"),
    list(quote(try_ate(y ~ t, bounds = list(y = c(1, 0)))), "bounds$y"),
    list(quote(try_ate(y ~ t | sex, bounds = c(c01, list(sex = c(0, 1))))), "data$sex == \"yes\""),
    list(quote(try_ate(y ~ region, bounds = c01)), "bounds = list(region = c("),
    list(quote(try_ate(y ~ visits)), "cut(visits, c(0, 1, 5))"),
    list(quote(try_ate(y ~ t, weights = visits, bounds = c01)), "bounds = list(visits = c(0, UPPER))"),
    list(quote(try_ate(y ~ t, by = age)), "cut(age, c("),
    list(quote(try_ate(y ~ t, unit = name)), "data$name[is.na(data$name)] <- \"none\""),
    list(quote(try_ate(region ~ t)), "data$region == 'E'"),
    list(quote(try_ate(y ~ t, "private_psm")), "method = \"clipped_contrast\""),
    list(quote(try_ate(y ~ t, ledger = "no.ledger")), "create_ledger(\"no.ledger\", \"NAME\", epsilon = 1)"),
    list(quote(dp_qte(y ~ t, df, quantiles = 50, epsilon = 1, bounds = BOUNDS)), "c(0.1, 0.5, 0.9)"),
    list(quote(dp_ordinal(visits ~ t, df, epsilon = 1, bounds = BOUNDS)), "list(visits = c(\"none\""),
    list(quote(dp_multisite(y ~ t, df, site = region, epsilon = 1)), "epsilon = list(North = 1"),
    list(quote(dp_balance(y ~ t, df, epsilon = 1, bounds = BOUNDS)), "y ~ t | x1 + x2"),
    list(quote(dp_ate(y ~ t, list(a = 1), epsilon = 1)), "as.data.frame("),
    list(quote(dp_plan(y ~ t, n = 100, epsilon = 1)), "bounds = list(y = c(LOWER, UPPER))"),
    list(quote(fit$ci), "confint(fit)"),
    list(quote(fit$to_latex()), "toLatex(fit)"),
    list(quote(fit$resid), "summary(fit)"),
    list(quote(dpe()$coxph()), "dp_survival"),
    list(quote(tidy(fit, conf.level = 95)), "conf.level")
  ) |> lapply(function(case) c(case, environment()))
}

# Syntax of Python: dicts, keywords without spaces, lists and tuples as values, constants, methods
PYTHON <- paste(
  "\\{['\"]", "\\b\\w+=[^= ]", "= ?[[(]", "\\b(True|False|None)\\b", "\\*\\*", "\\bis_na\\(",
  "\\bfit\\.", "\\bdpe\\.", "\\bpandas\\b", "\\bdata\\[", "\\b(dict|tuple)\\b", "levels=",
  sep = "|"
)

test_that("errors of Python advise R", {
  skip_without_python()
  cases <- mistakes()
  expect_gte(length(cases), 25)
  for (case in cases) {
    told <- tryCatch(eval(case[[1]], case[[3]]), error = identity)
    expect_s3_class(told, "dpeffects_error")
    shown <- conditionMessage(told)
    expect_match(shown, case[[2]], fixed = TRUE)
    expect_false(grepl(PYTHON, shown, perl = TRUE), info = shown)
  }
})

test_that("every kind of advice has its translation", {
  said <- c(
    "write C(x, levels=[...]), the reference level first" = "write factor(x, levels = c(...)), the reference level first",
    "by takes \"sex + cut(age, [18, 40, 65])\"" = "by takes \"sex + cut(age, c(18, 40, 65))\"",
    "write I(x ** 2) or is_na(x)" = "write I(x^2) or is.na(x)",
    "write is_na(x), and ~is_na(x)" = "write is.na(x), and !is.na(x)",
    "write x in ['a', 'b']" = "write x %in% c('a', 'b')",
    "Add bounds={\"age\": (18, 90), \"*_hx\": [0, 1]}" = "Add bounds = list(age = c(18, 90), `*_hx` = c(0, 1))",
    "bounds={\"visits\": range(0, 31)}" = "bounds = list(visits = c(0L, 30L))",
    "or pandas.to_numeric(data['name']) if it is a number" = "or as.numeric(data$name) if it is a number",
    "Write accept_none=True" = "Write accept_none = TRUE",
    "unit=None, means=False" = "unit = NULL, means = FALSE",
    "change=(-1, 1)" = "change = c(-1, 1)",
    "Ask the result for a level: fit.conf_int(0.9)" = "Ask the result for a level: confint(fit, level = 0.9)",
    "see dpe.methods()" = "see dp_methods()",
    "plots need matplotlib: pip install \"dpeffects[plot]\"" = "plots need matplotlib: dpeffects_install(\"dpeffects[plot]\")",
    "covariates are scaled to [0, 1]" = "covariates are scaled to [0, 1]",
    "the interval from 0 to 1 (95 % interval)" = "the interval from 0 to 1 (95 % interval)",
    "/tmp/study.ledger.old is none" = "/tmp/study.ledger.old is none",
    "Everything: fit.summary()" = "Everything: summary(fit)",
    "Everything: summary()" = "Everything: summary(fit)"
  )
  expect_identical(unname(in_r(names(said))), unname(said))
})
