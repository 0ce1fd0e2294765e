#' Differentially private treatment effects
#'
#' `dp_ate(y ~ t | age, data, epsilon = 1, bounds = list(y = c(0, 1), age = c(18, 90)))` estimates
#' an average treatment effect with differential privacy. Begin with [dp_ate()] and the vignette,
#' `vignette("dpeffects")`; [dpe()] describes the installation.
#'
#' @keywords internal
#' @importFrom stats coef confint nobs vcov
"_PACKAGE"
