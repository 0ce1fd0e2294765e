#' Private treatment effects from R
#'
#' `dp_ate(y ~ t | age, data, epsilon = 1, bounds = list(y = c(0, 1), age = c(18, 90)))` and its
#' siblings translate formulas, bounds and data frames for the Python package dpeffects, and give
#' back what it returns. Begin with [dp_ate()]; [dpe()] says how Python is found.
#'
#' @keywords internal
#' @importFrom stats coef confint nobs vcov
"_PACKAGE"
