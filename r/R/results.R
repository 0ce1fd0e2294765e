# Results as R shows them. Numbers come from Python's tidy() and glance().

BROOM <- c(
  std_error = "std.error", p_value = "p.value", conf_low = "conf.low", conf_high = "conf.high",
  n = "nobs"
)

broomed <- function(frame) renamed(frame, BROOM)

#' Tables, plots and summaries of results
#'
#' `print()` shows what matters most and `summary()` everything. `tidy()` has one row for each
#' effect, and `glance()` one row for the whole result: its size, method and guarantee. They are
#' methods of the generics of the same names in the packages generics and broom, and can be called
#' without either, so that packages such as modelsummary and gtsummary take results like any model.
#'
#' `plot()` draws on the current device, as large as the device or the panel of a layout is. It
#' needs the Python package matplotlib, `dpeffects_install("dpeffects[plot]")`. In a knitr document
#' the table that `print()` shows is written in Markdown.
#'
#' @param x,object A result of a call such as [dp_ate()].
#' @param conf.int Whether confidence intervals are among the columns.
#' @param conf.level,level Confidence level, such as 0.95.
#' @param parm Effects by name or number; all of them by default.
#' @param name Name of one of the tables of a result, such as `"results"`. Studies have `"table1"`.
#' @param main Title of the plot, in the place of its own.
#' @param ... Further arguments. `tidy(fit, scale = "ratio")` is on another scale,
#'   `summary(fit, "short")` is what `print()` shows, and `plot(study, by = "sex")` draws the
#'   effects in subgroups.
#' @return
#' * `tidy()`, `glance()`, `as.data.frame()`: a data frame;
#' * `coef()`: the estimates, named by term;
#' * `confint()`: a matrix of confidence limits;
#' * `vcov()`: a matrix with squared standard errors on the diagonal. Covariances of several
#'   effects are not released, and are `NA`;
#' * `nobs()`: the number of records, which is public;
#' * `summary()`, `as_table()`: text, which `print()` shows; `$as_latex()`, `$as_html()` and
#'   `$as_markdown()` write it;
#' * `plot()`: `x`;
#' * `toLatex()`: the summary as lines of LaTeX.
#' @examplesIf reticulate::py_module_available("dpeffects")
#' trial <- load_data("ist")
#' fit <- dp_ate(stroke_14_days ~ treatment, trial, epsilon = 1, design = "randomised")
#' tidy(fit)
#' confint(fit, level = 0.9)
#' glance(fit)[c("nobs", "method", "epsilon", "delta")]
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
as_table <- function(x, name = "results", ...) UseMethod("as_table")

#' @export
as_table.dpeffects_result <- function(x, name = "results", ...) x$table(name, ...)

#' @rdname tidy
#' @export
print.dpeffects_result <- function(x, ...) {
  short <- tryCatch(x$summary("short"), dpeffects_error = function(e) NULL)
  shown <- if (is.null(short)) reticulate::py_repr(x) else reticulate::py_str(short)
  cat(in_r(shown), "\n", sep = "")
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
plot.dpeffects_result <- function(x, level = 0.95, main = NULL, ...) {
  if (!reticulate::py_has_attr(x, "plot")) {
    refuse("there is no plot of this result; tidy() has its numbers")
  }
  margins <- graphics::par(mar = c(0, 0, 0, 0))
  on.exit(graphics::par(margins))
  graphics::plot.new()
  graphics::plot.window(0:1, 0:1, xaxs = "i", yaxs = "i")
  if (reticulate::py_module_available("matplotlib")) {
    reticulate::import("matplotlib", convert = FALSE)$use("agg")
  }
  draw <- reticulate::py_get_attr(x, "plot")
  axes <- ask(draw, c(if (level != 0.95) list(conf_level = level), list(...)))
  graphics::rasterImage(picture(axes, main), 0, 0, 1, 1)
  invisible(x)
}

# Axes of matplotlib as a picture of the size of the panel, in the resolution of the device
picture <- function(axes, main = NULL) {
  if (is.list(axes)) axes <- axes[[1]]
  if (!is.null(main)) axes$set_title(main, loc = "left")
  figure <- reticulate::py_get_attr(axes, "figure")
  size <- graphics::par("fin")
  on.exit(reticulate::import("matplotlib.pyplot", convert = FALSE)$close(figure))
  bitmap <- grepl("png|jpeg|tiff|bmp|ragg|X11|RStudio|quartz", names(grDevices::dev.cur()), TRUE)
  dpi <- if (bitmap) grDevices::dev.size("px")[1] / grDevices::dev.size("in")[1] else PRINT_DPI
  figure$set_size_inches(size[1], size[2])
  figure$set_dpi(dpi)
  figure$canvas$draw()
  bytes <- reticulate::import_builtins(FALSE)$bytearray(figure$canvas$buffer_rgba())
  extent <- rev(as.integer(unlist(from_python(figure$canvas$get_width_height()))))
  cells <- readBin(reticulate::py_to_r(bytes), "integer", prod(extent), endian = "little")
  structure(cells, dim = extent, class = "nativeRaster", channels = 4L)
}

PRINT_DPI <- 300 # of devices without pixels of their own, such as pdf()

#' @rdname tidy
#' @importFrom utils toLatex
#' @export
toLatex.dpeffects_result <- function(object, ...) {
  lines <- strsplit(object$summary()$as_latex(), "\n", fixed = TRUE)[[1]]
  structure(lines, class = "Latex")
}

# rmarkdown reads \\[ as mathematics, where Markdown has an escaped bracket
knit_print <- function(x, ...) {
  shown <- in_r(x$summary("short")$as_markdown())
  knitr::asis_output(gsub("\\\\([][])", "\\1", shown))
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
