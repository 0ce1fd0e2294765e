skip_without_python <- function() {
  there <- tryCatch(!is.null(dpe()), error = function(e) conditionMessage(e))
  if (!isTRUE(there)) skip(there)
}

# Data with a column of each kind, and values that are missing
people <- function(n = 600) {
  i <- seq_len(n)
  data.frame(
    y = (i * 7) %% 11 / 10,
    t = i %% 2 == 0,
    age = as.integer(18 + (i * 13) %% 60),
    region = factor(c("N", "S", "E")[i %% 3 + 1], levels = c("S", "E", "N", "unused")),
    visits = i %% 5,
    name = ifelse(i %% 10 == 0, NA, c("a", "NA", "it's \u00e9")[(i %/% 2) %% 3 + 1]),
    day = as.Date("2020-02-28") + i %% 300
  )
}

BOUNDS <- list(
  y = c(0, 1), age = c(18, 90), region = c("N", "S", "E"), visits = c(0, 4),
  name = c("a", "NA", "it's \u00e9"), day = as.Date(c("2020-01-01", "2021-12-31"))
)
