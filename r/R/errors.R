# Errors, and what Python says in the syntax of R.

# An error of this package or of Python's, in one message. Its classes are "dpeffects_error" and,
# from Python, the name of the error, as in tryCatch(..., BudgetError = function(e) ...).
refuse <- function(..., class = character()) {
  stop(errorCondition(paste0(...), class = c(class, "dpeffects_error")))
}

IN_R <- "list(age = c(18, 90), region = c(\"N\", \"S\"))"

from_python_error <- function(e) {
  if (inherits(e, "dpeffects_error")) stop(e)
  error <- reticulate::py_last_error()
  if (is.null(error)) stop(e)
  refuse(in_r(trimws(error$value)), class = error$type)
}

# What Python advises to write, as R writes it
in_r <- function(message) {
  message <- within_matches(message, "\\{[^{}]*\\}", as_named_list)
  message <- within_matches(message, "\\brange\\([0-9]+, [0-9]+\\)", as_whole_range)
  for (i in seq_along(TRANSLATIONS)) {
    message <- gsub(names(TRANSLATIONS)[i], TRANSLATIONS[[i]], message, perl = TRUE)
  }
  message
}

within_matches <- function(text, pattern, change) {
  places <- gregexpr(pattern, text)
  regmatches(text, places) <- lapply(regmatches(text, places), change)
  text
}

# {"age": (18, 90), "sex": ["f", "m"]} as list(age = c(18, 90), sex = c("f", "m"))
as_named_list <- function(x) {
  x <- gsub("['\"]([^'\"]+)['\"]: ", "`\\1` = ", x)
  x <- gsub("`([A-Za-z][A-Za-z0-9._]*)` = ", "\\1 = ", x)
  x <- gsub("(?<![a-z])[(]([^()]*)[)]|\\[([^][]*)\\]", "c(\\1\\2)", x, perl = TRUE)
  sub("^\\{(.*)\\}$", "list(\\1)", x)
}

# range(0, 31), which Python ends before its last number, as c(0L, 30L)
as_whole_range <- function(x) {
  vapply(regmatches(x, gregexpr("[0-9]+", x)), function(ends) {
    paste0("c(", ends[1], "L, ", as.numeric(ends[2]) - 1, "L)")
  }, "")
}

# Patterns in the order in which they are replaced: whole phrases before single words.
TRANSLATIONS <- c(
  # data frames
  r"{\bpandas\.to_numeric\(data\[['"]([^'"]*)['"]\]\)}" = r"{as.numeric(data$\1)}",
  r"{\bdata\[['"]([^'"]*)['"]\]\.astype\(bool\)}" = r"{as.logical(data$\1)}",
  r"{\bdata\[['"]([^'"]*)['"]\]\.astype\("string"\)\.fillna\(("[^"]*")\)}" = r"{data$\1[is.na(data$\1)] <- \2}",
  r"{\bdata\[['"]([^'"]*)['"]\]}" = r"{data$\1}",
  r"{with \.str\.replace\(",", "\."\) before it}" = r"{with sub(",", ".", data$NAME) inside}",
  r"{ in pandas\b}" = "",
  r"{must be a frame \(pandas[^)]*\)}" = "must be a data frame",
  r"{, not dict: make one, as pandas\.DataFrame\(}" = ", not a list: make one, as as.data.frame(",
  r"{\bpandas\.DataFrame\(}" = "data.frame(",
  r"{\bpandas\.read_(csv|excel)\(}" = r"{read.\1(}",
  r"{\bpandas\.read_csv\b}" = "read.csv",
  r"{\bnumeric or bool\b}" = "numeric or logical",
  r"{\b0/1 or bool\b}" = "0 and 1 or logical",
  r"{\b0/1, bool\b}" = "0 and 1, logical",
  r"{\bit is String\b}" = "it is text",
  # bounds
  r"{\bbounds\[['"]([^'"]*)['"]\]}" = r"{bounds$\1}",
  r"{\ba range is a tuple: (?=\()}" = "a range is c",
  r"{\bdeclare a range as a tuple,}" = "declare a range,",
  r"{\b(in their order|its levels), as a list:}" = r"{\1:}",
  r"{\ba tuple\b}" = "c(lower, upper)",
  # formulas
  r"{"([\w.]+ ~ [^"\n]*)"}" = r"{\1}",
  r"{\bC\(([^()]*)\)}" = r"{factor(\1)}",
  r"{\bbs\((\w+), knots=\[([^]]*)\], lower_bound=([\w.]+), upper_bound=([\w.]+)\)}" = r"{bs(\1, knots = c(\2), Boundary.knots = c(\3, \4))}",
  r"{~ ?is_na\(}" = "!is.na(",
  r"{\bis_na\(}" = "is.na(",
  r"{(?<=[\w)]) ?\*\* ?(?=[\w(])}" = "^",
  r"{(?<=[\w)]) in \[([^\[\]]*)\]}" = r"{ %in% c(\1)}",
  "write & or `and`" = "write &",
  "write ~ or `not`" = "write !",
  r"{write & \| ~ and in, in small letters}" = "write &, |, ! and %in%",
  # values
  r"{\b(\w+)=\[}" = r"{\1 = [}",
  r"{(?<=[=(]|= |, |as |write )\[([^\[\]]*)\]}" = r"{c(\1)}",
  r"{(?<==|= )\((?=[\w.'"-]+, )}" = "c(",
  r"{\bTrue\b}" = "TRUE",
  r"{\bFalse\b}" = "FALSE",
  r"{(?<==|= |or |got |write )None\b}" = "NULL",
  # results
  r"{\b(?:fit\.)?summary\("short"\)}" = r"{summary(fit, "short")}",
  r"{\bfit\.summary\(\)\.as_latex\(\)}" = "toLatex(fit)",
  r"{\bfit\.conf_int\(\)}" = "confint(fit)",
  r"{\bfit\.conf_int\(([0-9.]+)\)}" = r"{confint(fit, level = \1)}",
  r"{\bfit\.(estimate|params)(?:,? or fit\.params)? by term\b}" = "coef(fit)",
  r"{\bfit\.std_error, or fit\.bse by term}" = "sqrt(diag(vcov(fit)))",
  r"{\bfit\.(summary|tidy|glance|plot)\(}" = r"{\1(fit, }",
  r"{\b(summary|tidy|glance|plot)\(fit, \)}" = r"{\1(fit)}",
  r"{(^|\n)(Everything: )summary\(\)}" = r"{\1\2summary(fit)}",
  r"{(?<![./\w])(fit|ledger|plan|paper|dataset)\.(?=[a-z_]+)}" = r"{\1$}",
  r"{\bdpe\.(methods|plan|reference)\(}" = r"{dp_\1(}",
  r"{\bdpe\.(?=\w)}" = "",
  r"{\bmodule 'dpeffects' has no attribute}" = "dpeffects has no function",
  r"{\bconf_level\b}" = "conf.level",
  # the shell
  r"{\bdpeffects ledger create (\S+) --dataset (\S+) --epsilon (\S+) --delta \S+}" = r"{create_ledger("\1", "\2", epsilon = \3)}",
  r"{\bpip install ("[^"]*")}" = r"{dpeffects_install(\1)}",
  # names of arguments
  r"{\b([a-z_]+)=(?=[,.;:]?(\s|$))}" = r"{\1}",
  r"{\b([A-Za-z_]\w*)=(?=[\w.\"'~(-])}" = r"{\1 = }"
)
