# Results as R shows them. Numbers come from Python's tidy() and glance().

BROOM <- c(
  std_error = "std.error", p_value = "p.value", conf_low = "conf.low", conf_high = "conf.high",
  n = "nobs"
)

broomed <- function(frame) {
  known <- names(frame) %in% names(BROOM)
  names(frame)[known] <- BROOM[names(frame)[known]]
  frame
}

#' Tables of results
#'
#' `tidy()` has a row for each effect, `glance()` one row for the release: its size, method and
#' guarantee. They are methods of the generics of the same names in the packages generics and
#' broom, and can be called without either.
#'
#' @param x,object A result of a call such as [dp_ate()].
#' @param conf.int Whether intervals are shown.
#' @param conf.level,level Level of intervals.
#' @param parm Effects by name or number; all of them by default.
#' @param ... For `tidy()` and `summary()`, further arguments in Python, such as
#'   `scale = "ratio"`; for `plot()`, graphical parameters.
#' @return `tidy()`, `glance()` and `as.data.frame()`: a data frame. `coef()`: estimates by term.
#'   `confint()`: a matrix. `vcov()`: squared standard errors; covariances of several effects are
#'   not released, and are `NA`. `nobs()`: the public number of records. `summary()`: everything
#'   worth printing. `plot()`: `x`, after drawing estimates and intervals. `toLatex()`: the
#'   summary as lines of LaTeX.
#' @export
tidy <- function(x, ...) UseMethod("tidy")

#' @rdname tidy
#' @export
glance <- function(x, ...) UseMethod("glance")

# Whichever package was attached last, tidy(lm(...)) is that of broom
#' @export
tidy.default <- function(x, ...) elsewhere("tidy")(x, ...)

#' @export
glance.default <- function(x, ...) elsewhere("glance")(x, ...)

elsewhere <- function(name) {
  if (!requireNamespace("generics", quietly = TRUE)) {
    refuse(name, "() of dpeffects is for its results; other objects need the package generics")
  }
  getExportedValue("generics", name)
}

#' @rdname tidy
#' @export
tidy.dpeffects_result <- function(x, conf.int = TRUE, conf.level = 0.95, ...) {
  level <- if (conf.level != 0.95) list(conf_level = conf.level)
  frame <- broomed(do.call(x$tidy, c(level, list(...))))
  if (conf.int) frame else frame[setdiff(names(frame), c("conf.low", "conf.high"))]
}

#' @rdname tidy
#' @export
glance.dpeffects_result <- function(x, ...) broomed(x$glance())

#' @rdname tidy
#' @export
as.data.frame.dpeffects_result <- function(x, ...) tidy.dpeffects_result(x, ...)

effects_in <- function(x, ...) {
  frame <- tidy.dpeffects_result(x, ...)
  if (!all(c("estimate", "std.error") %in% names(frame))) {
    refuse("this result has no estimates with standard errors; tidy() shows what it has")
  }
  frame
}

#' @rdname tidy
#' @export
coef.dpeffects_result <- function(object, ...) {
  frame <- effects_in(object)
  stats::setNames(frame$estimate, frame$term)
}

#' @rdname tidy
#' @export
confint.dpeffects_result <- function(object, parm, level = 0.95, ...) {
  frame <- effects_in(object, conf.level = level, ...)
  ends <- format(100 * c(1 - level, 1 + level) / 2, trim = TRUE, digits = 3)
  limits <- cbind(frame$conf.low, frame$conf.high)
  dimnames(limits) <- list(frame$term, paste(ends, "%"))
  if (missing(parm)) limits else limits[parm, , drop = FALSE]
}

#' @rdname tidy
#' @export
vcov.dpeffects_result <- function(object, ...) {
  frame <- effects_in(object)
  found <- matrix(NA_real_, nrow(frame), nrow(frame), dimnames = list(frame$term, frame$term))
  diag(found) <- frame$std.error^2
  found
}

#' @rdname tidy
#' @export
nobs.dpeffects_result <- function(object, ...) object$n

#' @rdname tidy
#' @export
summary.dpeffects_result <- function(object, ...) object$summary(...)

#' @rdname tidy
#' @export
print.dpeffects_result <- function(x, ...) {
  short <- tryCatch(x$summary("short"), dpeffects_error = function(e) NULL)
  shown <- if (is.null(short)) reticulate::py_repr(x) else reticulate::py_str(short)
  cat(sub("fit.summary()", "summary(fit)", shown, fixed = TRUE), "\n", sep = "")
  if (grepl("\n", shown)) {
    return(invisible(x))
  }
  frame <- tidy.dpeffects_result(x)
  main <- c("term", "estimate", "std.error", "conf.low", "conf.high", "p.value")
  if (all(main %in% names(frame))) frame <- frame[main]
  print(frame, digits = 3, row.names = FALSE)
  invisible(x)
}

#' @rdname tidy
#' @export
plot.dpeffects_result <- function(x, level = 0.95, ...) {
  frame <- effects_in(x, conf.level = level)
  rows <- rev(seq_len(nrow(frame)))
  range <- range(0, frame$estimate, frame$conf.low, frame$conf.high, finite = TRUE)
  margins <- graphics::par(mar = c(4, 2 + 0.5 * max(nchar(frame$term)), 2, 1))
  on.exit(graphics::par(margins))
  associated <- reticulate::py_has_attr(x, "associated") && x$associated
  what <- if (associated) "association" else frame$estimand[1]
  void <- grep("^void", frame$guarantee, value = TRUE)[1]
  given <- list(...)
  about <- list(
    x = frame$estimate, y = rows, xlim = range, ylim = c(0.5, nrow(frame) + 0.5), pch = 19,
    yaxt = "n", ylab = "",
    xlab = paste0(
      what, ", ", format(100 * level), " % intervals",
      if (!is.na(void)) paste0(" (NOT PRIVATE, ", void, ")")
    )
  )
  do.call(graphics::plot, c(given, about[setdiff(names(about), names(given))]))
  graphics::axis(2, at = rows, labels = frame$term, las = 1)
  graphics::abline(v = 0, lty = 3)
  graphics::segments(frame$conf.low, rows, frame$conf.high, rows)
  invisible(x)
}

#' @rdname tidy
#' @importFrom utils toLatex
#' @export
toLatex.dpeffects_result <- function(object, ...) {
  lines <- strsplit(object$summary()$as_latex(), "\n", fixed = TRUE)[[1]]
  structure(lines, class = "Latex")
}

knit_print <- function(x, ...) {
  knitr::asis_output(summary(x)$as_markdown())
}

.onLoad <- function(libname, pkgname) {
  register <- function(package, generic, method) {
    set <- function(...) {
      registerS3method(generic, "dpeffects_result", method, envir = asNamespace(package))
    }
    if (isNamespaceLoaded(package)) set()
    setHook(packageEvent(package, "onLoad"), set)
  }
  register("generics", "tidy", tidy.dpeffects_result)
  register("generics", "glance", glance.dpeffects_result)
  register("knitr", "knit_print", knit_print)
}
