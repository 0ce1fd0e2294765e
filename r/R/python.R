# The way to Python and back. Everything that is asked of the Python package goes through
# `ask`, and everything that comes back through `from_python`.

#' All functions of the package, and its installation
#'
#' The estimation is done by the Python package dpeffects. `dpe()` gives all functions of that
#' package, also those without a function of their own in R, with arguments as in R:
#' `dpe()$compare(fit1, fit2)`. `dp_help()` lists the arguments of a function. `dpeffects_install()`
#' installs the Python package.
#'
#' Which Python is used is decided once in a session, by the first call. To choose one, set the
#' environment variable `RETICULATE_PYTHON`, or call [reticulate::use_python()] or
#' [reticulate::use_virtualenv()] before that.
#'
#' @param name Name of a function.
#' @param source What to install: a name, an address or a folder.
#' @param ... Further arguments of [reticulate::py_install()], such as `envname`.
#' @return `dpe()`: all functions, behind `$`. The others: nothing.
#' @examplesIf reticulate::py_module_available("dpeffects")
#' dpe()$data_info("ist")
#' dp_help("dp_qte")
#' @export
dpe <- function() {
  if (is.null(python$module)) {
    python$module <- tryCatch(
      reticulate::import("dpeffects", convert = FALSE),
      error = function(e) refuse(no_python(conditionMessage(e)))
    )
  }
  as_object(python$module)
}

python <- new.env()

no_python <- function(why) {
  if (!reticulate::py_available(initialize = FALSE)) {
    return(paste0("reticulate finds no Python that it can use: ", why))
  }
  if (!grepl("dpeffects", why)) {
    return(paste0("the Python package dpeffects cannot be loaded: ", why))
  }
  paste0(
    "the Python at ", reticulate::py_config()$python, " has no package dpeffects: run ",
    "dpeffects_install(), or choose another Python with reticulate::use_python() or the ",
    "variable RETICULATE_PYTHON before the first call, in a new session"
  )
}

#' @rdname dpe
#' @export
dp_help <- function(name) {
  if (!reticulate::py_has_attr(dpe(), name)) refuse("there is no function `", name, "`")
  found <- reticulate::py_get_attr(dpe(), name)
  inspect <- reticulate::import("inspect")
  signature <- sub(" ->.*", "", reticulate::py_str(inspect$signature(found)))
  signature <- gsub("(\\w): '[^']*'", "\\1", gsub("\\*, ", "", signature))
  signature <- sub("\\*\\*\\w+(: \\w+)?\\)$", "...)", signature)
  manual <- sub("\n(Returns|Examples|In a shell::)\n.*", "", inspect$getdoc(found))
  manual <- gsub(":\\w+:`~?([^`]*)`", "`\\1()`", gsub("``", "`", manual))
  cat(in_r(paste0(name, signature, "\n\n", manual)), "\n", sep = "")
}

#' @rdname dpe
#' @export
dpeffects_install <- function(source = "dpeffects", ...) {
  reticulate::py_install(source, pip = TRUE, ...)
  invisible()
}

# Call something of Python's with arguments of R
ask <- function(f, arguments) {
  reticulate::py_clear_last_error()
  caught <- reticulate::import("warnings", convert = FALSE)$catch_warnings(record = TRUE)
  warned <- caught$`__enter__`()
  if (!is.null(arguments[["conf.level"]])) arguments <- renamed(arguments, c(conf.level = "conf_level"))
  found <- tryCatch(
    do.call(reticulate::py_call, c(list(f), lapply(arguments, to_python)), quote = TRUE),
    error = from_python_error,
    finally = caught$`__exit__`(NULL, NULL, NULL)
  )
  for (one in reticulate::iterate(warned)) {
    warning(in_r(reticulate::py_str(one$message)), call. = FALSE)
  }
  from_python(found)
}

renamed <- function(x, new) {
  known <- names(x) %in% names(new)
  names(x)[known] <- new[names(x)[known]]
  x
}

# --- to Python

to_python <- function(x) {
  if (is.null(x) || inherits(x, "python.builtin.object")) {
    return(x)
  }
  if (is.data.frame(x)) {
    return(as_pandas(x))
  }
  if (inherits(x, "formula")) {
    alone <- length(x) == 2L && is.symbol(x[[2]])
    return(if (alone) as.character(x[[2]]) else dp_formula(x))
  }
  if (inherits(x, "Date")) x <- stats::setNames(format(x), names(x))
  if (is.factor(x)) refuse("a factor is no argument: write text, as c(\"N\", \"S\")")
  if (!is.list(x) && !(is.atomic(x) && is.null(attr(x, "class")) && is.null(dim(x)))) {
    refuse("an argument of class ", class(x)[1], " cannot be given to Python: write numbers, text or lists; ",
      "dp_help(\"dp_ate\") shows what a call takes")
  }
  if (!is.list(x) && anyNA(x)) refuse("an argument is NA")
  if (!is.null(names(x))) {
    return(reticulate::py_dict(names(x), lapply(unname(x), to_python), convert = FALSE))
  }
  if (is.list(x)) {
    return(reticulate::r_to_py(lapply(x, to_python)))
  }
  one <- lapply(x, as_whole)
  if (length(one) == 1L) one[[1]] else reticulate::r_to_py(one)
}

# What is whole is an int of Python, as 5 is there
as_whole <- function(x) {
  whole <- is.numeric(x) && is.finite(x) && x == round(x) && abs(x) < 2^53
  if (!whole) {
    return(x)
  }
  if (abs(x) <= .Machine$integer.max) as.integer(x) else reticulate::py_eval(number(x), FALSE)
}

# Bounds by column: two numbers or two dates in a vector are a range, everything else is levels
as_bounds <- function(bounds) {
  named <- is.list(bounds) && !is.data.frame(bounds) && !is.null(names(bounds))
  if (!named || inherits(bounds, "python.builtin.object")) {
    if (is.list(bounds) && !is.data.frame(bounds) || is.numeric(bounds)) {
      refuse("bounds have names: ", IN_R)
    }
    return(to_python(bounds))
  }
  entries <- Map(as_bound, names(bounds), bounds)
  reticulate::py_dict(names(bounds), unname(entries), convert = FALSE)
}

as_bound <- function(name, x) {
  if (is.factor(x)) {
    refuse(
      "bounds of `", name, "`: a factor may have learnt its levels from the data; write what ",
      "they could be, as c(\"N\", \"S\")"
    )
  }
  if (!is.atomic(x) && !is.list(x) || !is.null(names(x))) {
    refuse("bounds of `", name, "`: write c(lower, upper), or the levels, as c(\"N\", \"S\")")
  }
  if (inherits(x, "Date")) x <- format(x)
  if (is.integer(x) && length(x) == 2L && !anyNA(x)) { # whole numbers, both ends included
    return(reticulate::import_builtins(FALSE)$range(x[1], x[2] + 1L))
  }
  dates <- is.character(x) && all(grepl("^[0-9]{4}-[0-9]{2}-[0-9]{2}$", x))
  range <- length(x) == 2L && (is.numeric(x) || dates)
  if (anyNA(x)) refuse("bounds of `", name, "`: NA is no bound")
  values <- lapply(as.list(x), to_python)
  if (range) do.call(reticulate::tuple, c(values, convert = FALSE)) else reticulate::r_to_py(values)
}

# --- from Python

# Results, frames and statistics as R has them. What is not available is NA, with its reason.
from_python <- function(x) {
  if (!inherits(x, "python.builtin.object")) {
    return(x)
  }
  if (inherits(x, "dpeffects.inference.estimate.Unavailable")) {
    return(structure(NA_real_, reason = reticulate::py_str(x)))
  }
  if (inherits(x, "dpeffects.inference.intervals.Interval")) {
    return(unlist(reticulate::iterate(x, reticulate::py_to_r)))
  }
  if (inherits(x, c("pandas.DataFrame", "pandas.core.frame.DataFrame"))) {
    return(as_data_frame(x))
  }
  if (any(startsWith(class(x), "numpy."))) {
    return(from_python(x$tolist()))
  }
  whole <- inherits(x, c("python.builtin.module", "python.builtin.type"))
  if (whole || any(startsWith(class(x), "dpeffects."))) {
    return(as_object(x))
  }
  value <- reticulate::py_to_r(x)
  if (!is.list(value) || is.data.frame(value)) {
    return(value)
  }
  value <- lapply(value, from_python)
  numbers <- vapply(value, function(y) is.numeric(y) && length(y) == 1L, TRUE)
  if (length(value) && all(numbers)) unlist(value) else value
}

as_object <- function(x) {
  result <- reticulate::py_has_attr(x, "tidy") && !inherits(x, "python.builtin.type")
  own <- c(if (result) "dpeffects_result", "dpeffects_object")
  class(x) <- c(own, setdiff(class(x), own))
  x
}

#' Parts of a result
#'
#' `fit$estimate`, `fit$means`, `fit$effect("ratio")`: parts and further analyses of a result, a
#' plan or a ledger. Arguments are those of R, and tables are data frames. A number that is not
#' available is `NA`, with the attribute `reason`.
#'
#' @param x A result, a plan, a ledger, or [dpe()].
#' @param name Name of a part.
#' @return The part, or a function where it has arguments.
#' @examplesIf reticulate::py_module_available("dpeffects")
#' trial <- load_data("ist")
#' fit <- dp_ate(stroke_14_days ~ treatment, trial, epsilon = 1, design = "randomised")
#' fit$estimate
#' fit$effect("ratio")
#' @export
`$.dpeffects_object` <- function(x, name) {
  if (inherits(x, OFFICE)) x[[name]] else part(x, name)
}

part <- function(x, name) {
  found <- tryCatch(reticulate::py_get_attr(x, name), error = from_python_error)
  called <- inherits(found, c("python.builtin.function", "python.builtin.method"))
  if (called) function(...) ask(found, list(...)) else from_python(found)
}

#' @export
`[[.dpeffects_object` <- function(x, name) {
  from_python(tryCatch(reticulate::py_get_item(x, to_python(name)), error = from_python_error))
}

#' @export
print.dpeffects_object <- function(x, ...) {
  cat(in_r(reticulate::py_str(x)), "\n", sep = "")
  invisible(x)
}
