# From an R formula to the text that Python reads. The expression is walked as a tree and
# nothing in it is evaluated, so that a formula of any length and depth says what it says.

# How tightly operators bind, in R as in the formulas of Python.
BINDS <- c(
  "~" = 1, "|" = 2, "&" = 3, "!" = 4, "==" = 5, "!=" = 5, "<" = 5, ">" = 5, "<=" = 5,
  ">=" = 5, "%in%" = 5, "+" = 6, "-" = 6, "*" = 7, "/" = 7, ":" = 8, "^" = 10
)
SIGN <- 9 # of one operand: tighter than a product, looser than a power
WRITTEN <- c("^" = "**", "!" = "~", "%in%" = "in")

PYTHON_WORDS <- c(
  "and", "as", "assert", "async", "await", "class", "def", "del", "elif", "except",
  "finally", "from", "global", "import", "in", "is", "lambda", "nonlocal", "not", "or",
  "pass", "raise", "return", "try", "with", "yield", "None", "True", "False"
)

#' Formulas
#'
#' Shows how a formula or a condition is read. Functions such as [dp_ate()] call this themselves.
#'
#' A formula is `outcome ~ treatment | covariates`. `I()`, `log()`, `a:b`, `a*b`, `(a + b)^2`,
#' `- 1`, `.` and `Surv(time, event)` mean what they mean in R, and so do
#' `cut(age, c(18, 40, 65, 90))`, `factor(x, levels = c("a", "b"))`, `is.na(x)`, `cbind(y1, y2)`
#' for several outcomes and `bs(x, knots = 40, Boundary.knots = c(18, 90))`. `.` stands for all
#' columns with declared bounds. Nothing is evaluated: write numbers out, or insert them with
#' [bquote()]. Terms that would be computed from the data, such as `scale(x)` and `cut(x, 4)`, are
#' refused.
#'
#' @param x A formula, or text.
#' @return The text that is passed on.
#' @examples
#' dp_formula(y ~ t | log(dose) + I(age^2) + cut(age, c(18, 40, 65, 90)))
#' dp_formula(~ age >= 18 & !is.na(dose))
#' @export
dp_formula <- function(x) {
  if (is.character(x)) {
    if (length(x) != 1L || is.na(x)) refuse("a formula is one text, or a formula of R")
    return(x)
  }
  if (!inherits(x, "formula")) {
    refuse("a formula is written outcome ~ treatment | covariates, not ", class(x)[1])
  }
  if (length(x) == 2L) {
    return(written(x[[2]], condition = TRUE))
  }
  right <- x[[3]]
  bar <- is.call(right) && identical(right[[1]], as.name("|"))
  paste(c(
    written(outcomes(x[[2]])), "~",
    if (bar) c(written(right[[2]]), "|", written(right[[3]])) else written(right)
  ), collapse = " ")
}

# cbind(y1, y2) is how R has several outcomes; here they are y1 + y2
outcomes <- function(x) {
  several <- is.call(x) && identical(x[[1]], as.name("cbind"))
  if (several) Reduce(function(a, b) call("+", a, b), as.list(x)[-1]) else x
}

# An expression as text. In a condition `&` and `|` are words of their own; elsewhere `a & b`
# is the product of two comparisons.
written <- function(x, condition = FALSE) {
  inner <- function(y) written(y, condition)
  if (is.symbol(x)) {
    return(named(as.character(x)))
  }
  if (!is.call(x)) {
    return(value(x))
  }
  f <- called(x)
  if (f == "(") {
    return(paste0("(", inner(x[[2]]), ")"))
  }
  if (f == "&" && !condition) {
    return(paste0("(", inner(x[[2]]), ") * (", inner(x[[3]]), ")"))
  }
  if (f %in% c("|", "!") && !condition) {
    refuse(
      if (f == "|") "`|` stands once in a formula, before the covariates" else "`!` is no term",
      ": write comparisons, as I((x > 1) + (z > 1) > 0) for `or` and I(x <= 1) for `not x > 1`"
    )
  }
  if (f %in% names(BINDS)) {
    return(if (length(x) == 2L) signed(x, f, inner) else joined(x, f, inner))
  }
  if (f == "$") {
    refuse("write the name of a column alone, `", x[[3]], "` and not `", deparse(x), "`, as in subset = age > 40")
  }
  if (f == "c") {
    if (!is.null(names(x))) refuse("names inside c() mean nothing in a formula: leave them out")
    return(paste0("[", paste(vapply(as.list(x)[-1], inner, ""), collapse = ", "), "]"))
  }
  if (f %in% names(CALLS)) CALLS[[f]](x, inner) else plain_call(x, f, inner)
}

# One operator with one operand; what is negated stands in brackets
signed <- function(x, f, inner) {
  not <- f == "!"
  operand <- within_brackets(x[[2]], if (not) Inf else SIGN, inner)
  paste0(if (not) "~" else f, operand)
}

# Two operands. A sum of a thousand terms is a thousand levels deep on its left, hence the loop.
joined <- function(x, f, inner) {
  binds <- BINDS[[f]]
  words <- character()
  repeat {
    here <- called(x)
    right <- within_brackets(x[[3]], binds + (here != "^"), inner)
    sign <- if (here %in% names(WRITTEN)) WRITTEN[[here]] else here
    tight <- here %in% c(":", "^")
    words <- c(if (tight) sign else paste0(" ", sign, " "), right, words)
    x <- x[[2]]
    same <- is.call(x) && length(x) == 3L && called(x) %in% names(BINDS) &&
      BINDS[[called(x)]] == binds && binds > 5 && called(x) != "^"
    if (!same) break
  }
  paste(c(within_brackets(x, binds + (binds == 5 || f == "^"), inner), words), collapse = "")
}

# An operand, in brackets if it binds less tightly than the operator it stands by
within_brackets <- function(x, binds, inner) {
  text <- inner(x)
  if (!is.call(x) || !called(x) %in% names(BINDS)) {
    return(text)
  }
  own <- if (length(x) == 2L && called(x) != "!") SIGN else BINDS[[called(x)]]
  if (own < binds) paste0("(", text, ")") else text
}

# The name of a function; survival::Surv is Surv
called <- function(x) {
  f <- x[[1]]
  if (is.call(f) && as.character(f[[1]])[1] %in% c("::", ":::")) f <- f[[3]]
  if (!is.symbol(f)) refuse("a function in a formula is called by its name")
  as.character(f)
}

named <- function(name) {
  plain <- name == "." || grepl("^[A-Za-z][A-Za-z0-9_]*$", name)
  if (name == "") refuse("a formula has an empty argument")
  if (plain && !name %in% PYTHON_WORDS) name else paste0("`", name, "`")
}

value <- function(x) {
  if (is.null(x) || anyNA(x)) {
    refuse("NA and NULL cannot stand in a formula: write is.na(x) for missing values")
  }
  if (is.character(x)) {
    one <- quoted(x)
  } else if (is.logical(x)) {
    one <- ifelse(x, "True", "False")
  } else if (is.numeric(x) && is.null(attr(x, "class"))) {
    if (!all(is.finite(x))) refuse("numbers in a formula are finite: write the ends out")
    one <- vapply(x, number, "")
  } else {
    refuse("a formula has names, numbers and text, not ", class(x)[1])
  }
  if (length(one) == 1L) one else paste0("[", paste(one, collapse = ", "), "]")
}

number <- function(x) {
  for (digits in 15:17) {
    text <- format(x, digits = digits, scientific = abs(x) >= 1e15 || (x != 0 && abs(x) < 1e-5))
    if (as.numeric(text) == x) break
  }
  text
}

quoted <- function(x) {
  for (pair in list(c("\\", "\\\\"), c("'", "\\'"), c("\n", "\\n"), c("\r", "\\r"))) {
    x <- gsub(pair[1], pair[2], x, fixed = TRUE)
  }
  paste0("'", enc2utf8(x), "'")
}

# A function that is the same in both languages: its arguments, names of them included
plain_call <- function(x, f, inner) {
  if (!grepl("^[A-Za-z][A-Za-z0-9_]*$", f)) {
    refuse(
      "`", f, "` cannot stand in a formula: write what it does with + - * / ^, log(), I() ",
      "and comparisons, or give it as a column"
    )
  }
  given <- as.list(x)[-1]
  texts <- vapply(given, inner, "")
  keys <- names(given)
  if (!is.null(keys)) texts <- paste0(keys, ifelse(keys == "", "", "="), texts)
  paste0(f, "(", paste(texts, collapse = ", "), ")")
}

# Arguments of a call by the names that R has for them
matched <- function(x, f, formals) {
  given <- as.list(x)[-1]
  keys <- names(given)
  if (is.null(keys)) keys <- rep("", length(given))
  free <- setdiff(formals, keys)
  keys[keys == ""] <- free[seq_len(sum(keys == ""))]
  odd <- c(setdiff(keys, formals), keys[is.na(keys)])
  if (length(odd)) {
    refuse("`", f, "()` in a formula takes ", paste(formals, collapse = ", "), " and nothing else")
  }
  stats::setNames(given, keys)
}

listed <- function(x, inner) {
  text <- inner(x)
  if (startsWith(text, "[")) text else paste0("[", text, "]")
}

as_levels <- function(x, inner) {
  given <- matched(x, called(x), c("x", "levels"))
  levels <- if (!is.null(given$levels)) paste0(", levels=", listed(given$levels, inner))
  paste0("C(", inner(given$x), levels, ")")
}

CALLS <- list(
  factor = as_levels,
  as.factor = as_levels,
  C = as_levels,
  is.na = function(x, inner) paste0("is_na(", inner(x[[2]]), ")"),
  cut = function(x, inner) {
    given <- matched(x, "cut", c("x", "breaks"))
    points <- given$breaks
    if (is.null(points) || (is.numeric(points) && length(points) == 1L)) {
      refuse(
        "cut() with a number of intervals would learn them from the data: ",
        "write the points, cut(age, c(18, 40, 65, 90))"
      )
    }
    paste0("cut(", inner(given$x), ", ", inner(points), ")")
  },
  bs = function(x, inner) {
    known <- c("x", "df", "knots", "degree", "intercept", "Boundary.knots")
    if (any(c("lower_bound", "upper_bound") %in% names(x))) {
      return(plain_call(x, "bs", inner))
    }
    given <- matched(x, "bs", known)
    ends <- given$Boundary.knots
    if (is.call(ends)) ends <- as.list(ends)[-1]
    if (!is.null(given$df) || is.null(given$knots) || length(ends) != 2L) {
      refuse(
        "knots would be read from the data: ",
        "write bs(age, knots = c(40, 65), Boundary.knots = c(18, 90))"
      )
    }
    words <- c(
      inner(given$x), paste0("knots=", listed(given$knots, inner)),
      paste0("lower_bound=", inner(ends[[1]])), paste0("upper_bound=", inner(ends[[2]])),
      if (!is.null(given$degree)) paste0("degree=", inner(given$degree)),
      if (!is.null(given$intercept)) paste0("include_intercept=", inner(given$intercept))
    )
    paste0("bs(", paste(words, collapse = ", "), ")")
  }
)
