# One function for each call of the Python package, all made by `door`.

door <- function(name) {
  force(name)
  function(formula, data, ..., epsilon, delta, bounds) {
    written <- as.list(substitute(list(...)))[-1]
    known <- columns_of(data)
    caller <- parent.frame()
    further <- lapply(seq_along(written), function(i) {
      key <- names(written)[i]
      if (!isTRUE(key %in% COLUMN_ARGUMENTS)) return(...elt(i))
      in_data(written[[i]], function() ...elt(i), key, known, caller)
    })
    given <- c(
      list(dp_formula(formula), to_python(data)), stats::setNames(further, names(written))
    )
    if (!missing(epsilon)) given$epsilon <- epsilon
    if (!missing(delta)) given$delta <- delta
    if (!missing(bounds)) given$bounds <- as_bounds(bounds)
    do.call(part(dpe(), name), given, quote = TRUE)
  }
}

# Arguments that name columns or state conditions on them. They are read as `lm` reads weights and
# subset: names of columns come first, other names are looked up where the call stands. The rows
# themselves are not touched: Python gets the text of the expression.
COLUMN_ARGUMENTS <- c(
  "subset", "by", "weights", "cluster", "unit", "instrument", "offset", "site", "before", "time",
  "subgroups"
)

in_data <- function(x, value, argument, known, caller) {
  one <- function(y) in_data(y, function() eval(y, caller), argument, known, caller)
  if (is.call(x) && identical(x[[1]], as.name("~")) && length(x) == 2L) {
    return(as_text(x[[2]], known, caller))
  }
  if (is.call(x) && as.character(x[[1]])[1] %in% c("list", "c")) {
    return(lapply(as.list(x)[-1], one))
  }
  names <- all.vars(x)
  if (is.language(x) && any(names %in% known)) {
    return(as_text(x, known, caller))
  }
  if (is.language(x) && !all(vapply(names, exists, TRUE, envir = caller))) {
    return(as_text(x, known, caller)) # Python says what is not there, and what is like it
  }
  found <- value()
  if (is.function(found) && is.symbol(x)) return(as.character(x)) # a column named as a function
  if (is.numeric(found) || is.logical(found) || is.factor(found)) {
    refuse(
      "`", argument, "` takes the name of a column or a condition on columns, as ", argument,
      if (argument == "subset") " = age > 40" else " = village", ", not a vector of values"
    )
  }
  found
}

as_text <- function(x, known, caller) {
  if (is.symbol(x)) {
    return(as.character(x))
  }
  others <- if (is.null(known)) character() else setdiff(all.vars(x), known)
  values <- mget(others, caller, inherits = TRUE, ifnotfound = list(sum)) # a function is no value
  values <- Filter(function(y) is.atomic(y) && length(y), values)
  written(do.call(substitute, list(x, values)), condition = TRUE)
}

# Names of the columns, of data that are at hand
columns_of <- function(data) {
  if (is.data.frame(data)) names(data)
  else if (inherits(data, "dpeffects.design.bounds.DeclaredFrame")) {
    reticulate::py_to_r(reticulate::py_get_attr(data, "columns")$tolist())
  } else if (inherits(data, IN_OFFICE)) {
    unlist(part(data, "columns"))
  }
}

#' Differentially private treatment effects
#'
#' Each function estimates a treatment effect from a formula and a data frame, with differential
#' privacy for every record. `epsilon` is the privacy budget: the smaller it is, the stronger the
#' protection and the wider the confidence interval.
#'
#' * `dp_ate()`, `dp_att()`, `dp_atc()`: average effects in the whole population, among the treated
#'   and among the controls;
#' * `dp_cate()`: effects in groups, or conditional on covariates;
#' * `dp_survival()`, `dp_qte()`, `dp_rate()`, `dp_ordinal()`: survival, quantiles, rates per
#'   person-time, and ordered outcomes;
#' * `dp_late()`, `dp_did()`: instrumental variables, and difference in differences;
#' * `dp_study()`: several outcomes and subgroups, with a Table 1; `dp_moments()`: one release from
#'   which any number of regressions can be fitted without further cost;
#' * `dp_balance()`: covariate balance; `dp_randomisation_test()`: a test of the sharp null
#'   hypothesis that the treatment has no effect on any unit;
#' * `dp_multisite()`: several sites, each with a budget of its own;
#' * `dp_reference()`: the same analysis without privacy noise, for the data holder only;
#'   `call = "dp_qte"` chooses another function than `dp_ate()`.
#'
#' `dp_help("dp_ate")` lists all arguments of a function, and `dp_methods()` the methods.
#'
#' @section Bounds:
#' Bounds state which values a variable could have. They must come from the meaning of the variable
#' and never from the data.
#'
#' * `c(18, 90)`, two numbers or two dates, is a range; `c(0L, 30L)` a range of whole numbers;
#' * `c("N", "S")`, text, or three numbers and more, are levels. The first is the reference;
#' * `list(0, 1)` are two levels that are numbers, such as those of a binary outcome.
#'
#' Logical columns need no bounds. The levels of a factor do not count as bounds, because they may
#' have been read from the data. Numbers without bounds are bounded privately, at a price.
#'
#' @section Columns:
#' `subset`, `by`, `weights`, `cluster`, `unit`, `instrument`, `offset`, `site` and `before` are
#' written as in [lm()] or as formulas: `subset = age > 40`, `weights = w`, `cluster = ~village`,
#' `by = ~ sex + region`. Names of columns come first, and other names are looked up where the
#' call stands. Text is taken as it is: `cluster = "village"`.
#'
#' @param formula `outcome ~ treatment | covariates`; see [dp_formula()] for the terms it can have.
#' @param data A data frame, data from [dp_declare()] or [load_data()], the path of a Parquet or CSV
#'   file, or a data set of an office ([dp_connect()]).
#' @param ... Further arguments: `method`; `design` (`"randomised"` or `"observational"`);
#'   `subset`, `by`, `weights`, `cluster` and `unit` (see Columns); `missing`, for missing values
#'   (`"error"`, `"complete"`, `"indicator"` or `"weight"`, or a named list by column);
#'   `budget_split`, a named list of proportions of the budget; `ledger`, from [create_ledger()];
#'   and `seed`, which makes a result reproducible and therefore not private.
#' @param epsilon,delta The privacy budget.
#' @param bounds A named list of bounds, see below. Names can be patterns, such as `"*_hx"`. Or a
#'   codebook: a data frame, or the path of a TOML or CSV file.
#' @return A result, for which there are [print()], [summary()], [plot()], [tidy()], [glance()],
#'   [confint()] and [others][tidy.dpeffects_result]. Its parts follow `$`, such as
#'   `fit$estimate`, `fit$means` and `fit$effect("ratio")`.
#' @examplesIf reticulate::py_module_available("dpeffects")
#' df <- data.frame(
#'   y = runif(400), t = rep(c(FALSE, TRUE), 200), age = 18 + rep(0:49, 8),
#'   sex = rep(c("f", "m"), each = 2, times = 100)
#' )
#' bounds <- list(y = c(0, 1), age = c(18, 90), sex = c("f", "m"))
#' fit <- dp_ate(y ~ t | age, df, epsilon = 1, bounds = bounds, design = "randomised")
#' fit
#' tidy(fit)
#'
#' older <- dp_ate(
#'   y ~ t, df,
#'   epsilon = 1, bounds = bounds, design = "randomised", subset = age > 40, by = ~sex
#' )
#' confint(older)
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

#' Plans, methods and privacy budgets on disk
#'
#' `dp_plan()` forecasts the precision of an analysis before there are data, from public numbers.
#' `dp_methods()` lists the methods. A ledger is a file or a database that keeps the privacy budget
#' of a data set: calls with `ledger = ` are charged to it, and refused once it is spent.
#'
#' @inheritParams dp_ate
#' @param n Number of records, or a data set of an office ([dp_connect()]), which has its bounds.
#' @param epsilon The privacy budget.
#' @param name Name of a method, to see its description; without a name all are listed.
#' @param ... Further arguments, such as `delta`, `method`, `design`, `outcome_mean` and
#'   `outcome_sd` of a plan.
#' @param address Path of the ledger, or the address of a database.
#' @param dataset Name of the data set in the ledger.
#' @param anchor Path of a second file in which the ledger's newest entry is noted, so that an old
#'   copy of the ledger is refused; for `create_ledger()` too.
#' @return A plan; a data frame or text; a ledger. `ledger$remaining` is what is left of epsilon
#'   and delta.
#' @examplesIf reticulate::py_module_available("dpeffects")
#' bounds <- list(y = c(0, 1), age = c(18, 90))
#' dp_plan(y ~ t | age, n = 2000, epsilon = 1, bounds = bounds, method = "auto", design = "randomised")
#' ledger <- create_ledger(tempfile(fileext = ".ledger"), "trial", epsilon = 3)
#' ledger$remaining
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
