# Data frames to pandas and back. Types depend on the class of a column alone, never on its
# values: a missing value makes no other type of a column, so that nothing shows it.

BARE <- c("AsIs", "haven_labelled", "vctrs_vctr", "labelled")

as_pandas <- function(data) {
  columns <- names(data)
  if (anyDuplicated(columns)) {
    refuse("the data has two columns named `", columns[anyDuplicated(columns)], "`: rename one")
  }
  made <- Map(as_column, columns, lapply(seq_along(columns), function(i) data[[i]]))
  reticulate::import("pandas", convert = FALSE)$DataFrame(
    reticulate::py_dict(columns, unname(made), convert = FALSE)
  )
}

as_column <- function(name, x) {
  pandas <- reticulate::import("pandas", convert = FALSE)
  if (is.factor(x)) {
    levels <- reticulate::r_to_py(as.list(enc2utf8(levels(x))))
    return(coded(x, levels, ordered = is.ordered(x)))
  }
  if (inherits(x, "Date")) {
    return(stamps(86400 * floor(as.numeric(x))))
  }
  if (inherits(x, "POSIXct")) { # the time of day that R shows, in the column's own time zone
    x <- as.POSIXlt(x)
    seconds <- 86400 * as.numeric(as.Date(x)) + 3600 * x$hour + 60 * x$min + x$sec
    return(stamps(seconds))
  }
  class(x) <- setdiff(oldClass(x), c(BARE, "double", "integer", "character"))
  if (length(oldClass(x)) || !is.null(dim(x)) || !is.atomic(x) || is.complex(x) || is.raw(x)) {
    refuse(
      "column `", name, "` is of class ", class(x)[1], ": make numbers, text, TRUE and FALSE or ",
      "dates of it, as as.numeric(", name, "), or leave it out of the data"
    )
  }
  if (is.character(x)) {
    levels <- unique(x[!is.na(x)])
    codes <- coded(match(x, levels), reticulate::r_to_py(as.list(enc2utf8(levels))))
    return(pandas$Series(codes)$astype("string"))
  }
  numbers <- buffer(as.numeric(x))
  kind <- c(integer = "Int64", logical = "boolean")[typeof(x)]
  if (is.na(kind)) numbers else pandas$array(numbers, dtype = kind[[1]])
}

coded <- function(codes, levels, ordered = FALSE) {
  codes <- as.integer(codes) - 1L
  codes[is.na(codes)] <- -1L
  pandas <- reticulate::import("pandas", convert = FALSE)
  pandas$Categorical$from_codes(buffer(codes), categories = levels, ordered = ordered)
}

# Seconds since 1970. Years before 1 and after 9999 are cut, as values beyond their bounds are:
# an error would show them.
stamps <- function(seconds) {
  seconds <- pmin(pmax(as.double(seconds), -62135596800), 253402214400)
  buffer(1e6 * seconds)$astype("datetime64[us]")
}

# Numbers travel as bytes: exact, fast, and whichever version of NumPy reticulate knows
buffer <- function(x) {
  bytes <- reticulate::r_to_py(writeBin(x, raw()))
  kind <- if (is.integer(x)) "i4" else "f8"
  reticulate::import("numpy", convert = FALSE)$frombuffer(bytes, dtype = kind)
}

as_data_frame <- function(frame) {
  columns <- reticulate::py_to_r(frame$columns$tolist())
  frame <- frame$copy()
  for (name in reticulate::py_to_r(frame$select_dtypes("datetime")$columns$tolist())) {
    dates <- frame$`__getitem__`(name)$astype("string")$str$zfill(10L)
    frame$`__setitem__`(name, dates)
  }
  lists <- lapply(columns, function(name) {
    simple(reticulate::py_to_r(frame$`__getitem__`(name)$tolist()))
  })
  names(lists) <- columns
  as.data.frame(lists, optional = TRUE, stringsAsFactors = FALSE)
}

# Values with gaps: None of Python, and NaN among texts, are NA
simple <- function(x) {
  if (!is.list(x)) {
    return(x)
  }
  text <- any(vapply(x, is.character, TRUE))
  gap <- vapply(x, function(y) {
    length(y) != 1L || (text && !is.character(y)) || (is.atomic(y) && is.na(y) && !is.nan(y))
  }, TRUE)
  x[gap] <- NA
  if (all(vapply(x, function(y) is.atomic(y) && length(y) == 1L, TRUE))) unlist(x) else I(x)
}

#' Data with declared bounds
#'
#' `dp_declare()` attaches bounds to a data frame once, for all calls. `load_data()` and
#' `dp_simulate()` give data that come with the package, with their bounds.
#'
#' @inheritParams dp_ate
#' @param name Name of a data set or of a simulation; `dpe()$list_data()` lists the data sets.
#' @param n,seed Number of rows, and the seed of the random numbers.
#' @param ... Further arguments of the simulation.
#' @return Data that all calls take. [as.data.frame()] gives the rows.
#' @examplesIf reticulate::py_module_available("dpeffects")
#' trial <- load_data("ist")
#' head(as.data.frame(trial))
#' @export
dp_declare <- function(data, bounds) {
  dpe()$declare(data, as_bounds(bounds))
}

#' @rdname dp_declare
#' @export
load_data <- function(name) dpe()$load_data(name)

#' @rdname dp_declare
#' @export
dp_simulate <- function(name, n = NULL, seed = 0, ...) dpe()$simulate(name, n, seed, ...)

#' @export
as.data.frame.dpeffects.design.bounds.DeclaredFrame <- function(x, ...) {
  as_data_frame(reticulate::py_get_attr(x, "frame"))
}
