# One function for each call of the Python package, all made by `door`.

door <- function(name) {
  force(name)
  function(formula, data, ..., epsilon, delta, bounds) {
    asked <- substitute(list(...))
    further <- tryCatch(list(...), error = function(e) refuse(not_there(e, asked)))
    given <- c(list(dp_formula(formula), to_python(data)), further)
    if (!missing(epsilon)) given$epsilon <- epsilon
    if (!missing(delta)) given$delta <- delta
    if (!missing(bounds)) given$bounds <- as_bounds(bounds)
    do.call(part(dpe(), name), given, quote = TRUE)
  }
}

# What to write where an argument names a column, or a condition on it, as `lm` would read it
not_there <- function(e, arguments) {
  name <- sub("^object '(.*)' not found$", "\\1", conditionMessage(e))
  if (identical(name, conditionMessage(e))) {
    return(name)
  }
  here <- Filter(function(x) name %in% all.vars(x), as.list(arguments)[-1])
  if (!length(here)) {
    return(conditionMessage(e))
  }
  said <- paste(deparse(here[[1]]), collapse = " ")
  paste0(
    "there is no object '", name, "': columns and conditions on them are formulas with one ",
    "side, ", names(here)[1], " = ~ ", said
  )
}

#' Private treatment effects
#'
#' Each call estimates from a formula and a data frame, within a privacy budget. Its methods,
#' assumptions and guarantees are those of the function of the same name in Python
#' (`dp_help("dp_ate")` shows its manual).
#'
#' * `dp_ate()`, `dp_att()`, `dp_atc()`: average effects, on all, on the treated, on controls;
#' * `dp_cate()`: effects by group, or as a function of covariates;
#' * `dp_survival()`, `dp_qte()`, `dp_rate()`, `dp_ordinal()`: survival, quantiles, rates,
#'   ordered outcomes;
#' * `dp_late()`, `dp_did()`: with an instrument, and differences in differences;
#' * `dp_study()`: many outcomes and subgroups at once; `dp_moments()`: one noisy matrix of
#'   which regressions are made afterwards, for nothing;
#' * `dp_balance()`: balance of covariates; `dp_randomisation_test()`: a test;
#' * `dp_multisite()`: several sites, each with a budget of its own;
#' * `dp_reference()`: the same without noise, for the curator's eyes; `call = "dp_qte"` for other
#'   calls than `dp_ate()`.
#'
#' Factors, text and numbers need bounds: what a value could be, from the meaning of the
#' variable and never from the data. Levels of a factor do not count as declared, because
#' nobody can tell whether they were learnt from the data. TRUE and FALSE need none. Numbers
#' without bounds are bounded privately, out of the budget.
#'
#' @param formula `outcome ~ treatment | covariates`; see [dp_formula()] for what it can have.
#' @param data A data frame, data from [dp_declare()] or [load_data()], or the path of a Parquet
#'   or CSV file.
#' @param ... Further arguments of the call in Python, such as `method`, `design`, `unit`,
#'   `cluster`, `weights`, `missing`, `subset`, `by`, `ledger` or `seed`. Columns and conditions
#'   are text or formulas with one side: `cluster = ~village`, `subset = ~ age >= 18`. Named
#'   lists are dicts. A `seed` makes a run reproducible and therefore not private.
#' @param epsilon,delta The privacy budget.
#' @param bounds A named list. `c(18, 90)`, two numbers or two dates, is a range; text, or more
#'   numbers, are levels, the first of them the reference; `list(0, 1)` are two levels that are
#'   numbers, as of an outcome that is 0 or 1. Dates are of class Date, or `"2020-12-31"`. Names can be patterns, `"*_hx"`. Or a
#'   codebook: a data frame, or the path of a TOML or CSV file.
#' @return A result, for which there are [print()], [summary()], [tidy()], [glance()],
#'   [confint()] and [others][tidy.dpeffects_result]. `fit$...` has everything that it has in
#'   Python.
#' @examples
#' \dontrun{
#' df <- data.frame(y = runif(400), t = rep(0:1, 200), age = 18 + rep(0:49, 8))
#' fit <- dp_ate(y ~ t | age, df, epsilon = 1, bounds = list(y = c(0, 1), age = c(18, 90)))
#' tidy(fit)
#' }
#' @export
dp_ate <- door("dp_ate")
#' @rdname dp_ate
#' @export
dp_att <- door("dp_att")
#' @rdname dp_ate
#' @export
dp_atc <- door("dp_atc")
#' @rdname dp_ate
#' @export
dp_cate <- door("dp_cate")
#' @rdname dp_ate
#' @export
dp_survival <- door("dp_survival")
#' @rdname dp_ate
#' @export
dp_qte <- door("dp_qte")
#' @rdname dp_ate
#' @export
dp_rate <- door("dp_rate")
#' @rdname dp_ate
#' @export
dp_ordinal <- door("dp_ordinal")
#' @rdname dp_ate
#' @export
dp_late <- door("dp_late")
#' @rdname dp_ate
#' @export
dp_did <- door("dp_did")
#' @rdname dp_ate
#' @export
dp_study <- door("dp_study")
#' @rdname dp_ate
#' @export
dp_moments <- door("dp_moments")
#' @rdname dp_ate
#' @export
dp_balance <- door("dp_balance")
#' @rdname dp_ate
#' @export
dp_randomisation_test <- door("dp_randomisation_test")
#' @rdname dp_ate
#' @export
dp_multisite <- door("dp_multisite")
#' @rdname dp_ate
#' @export
dp_reference <- door("reference")

#' Plans, methods and ledgers
#'
#' `dp_plan()` says how accurate methods will be, from public numbers; `dp_methods()` lists them.
#' A ledger is a file or a database that has the privacy budget of a data set: calls that get it
#' as `ledger` are charged to it, and refused when it is spent.
#'
#' @inheritParams dp_ate
#' @param n Number of records.
#' @param epsilon The privacy budget.
#' @param name Name of a method, for its description; all of them without one.
#' @param ... Further arguments in Python, such as `delta`, `method` or `design`.
#' @param address Path of the ledger, or the address of a database.
#' @param dataset Name of the data in the ledger.
#' @param anchor Where the ledger's anchor is, if not where the ledger says. `create_ledger()` takes
#'   it too, and notes the newest entry there, so that a backup that is put back is refused.
#' @return A plan, a data frame (or text), a ledger.
#' @examples
#' \dontrun{
#' dp_plan(y ~ t | age, n = 2000, epsilon = 1, bounds = list(y = c(0, 1), age = c(18, 90)))
#' ledger <- create_ledger("study.ledger", "trial", epsilon = 3)
#' }
#' @export
dp_plan <- function(formula, n, ..., epsilon, bounds = NULL) {
  dpe()$plan(dp_formula(formula), n = n, epsilon = epsilon, bounds = as_bounds(bounds), ...)
}

#' @rdname dp_plan
#' @export
dp_methods <- function(name = NULL) dpe()$methods(name)

#' @rdname dp_plan
#' @export
create_ledger <- function(address, dataset, ..., epsilon) {
  dpe()$create_ledger(address, dataset, epsilon = epsilon, ...)
}

#' @rdname dp_plan
#' @export
open_ledger <- function(address, dataset = NULL, anchor = NULL) {
  dpe()$open_ledger(address, dataset, anchor = anchor)
}
