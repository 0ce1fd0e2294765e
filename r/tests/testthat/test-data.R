test_that("columns go to Python and back", {
  skip_without_python()
  df <- people()
  df$age[4] <- NA
  df$t[5] <- NA
  df$y[6] <- NA
  df$day[7] <- NA
  df$region[8] <- NA
  back <- as_data_frame(as_pandas(df))
  expect_identical(names(back), names(df))
  for (name in c("y", "t", "age", "visits", "name")) {
    expect_equal(back[[name]], df[[name]], info = name)
  }
  expect_identical(back$region, as.character(df$region))
  expect_identical(back$day, format(df$day))
})

test_that("times are those that R shows", {
  skip_without_python()
  shown <- c("2020-03-29 01:30:00", "2020-03-29 03:30:00", NA, "1969-12-31 23:59:59")
  times <- data.frame(when = as.POSIXct(shown, tz = "Europe/Berlin"))
  expect_identical(as_data_frame(as_pandas(times))$when, shown)
})

test_that("no date is too far for Python, nor shown by an error", {
  skip_without_python()
  days <- as.Date(c("9999-12-31", "2020-02-29", NA, "1066-10-14"))
  shown <- as_data_frame(as_pandas(data.frame(day = days)))$day
  expect_identical(substr(shown, 1, 10), format(days))
  far <- structure(c(1e10, Inf, -Inf, 0), class = "Date")
  shown <- as_data_frame(as_pandas(data.frame(day = far)))$day
  expect_identical(substr(shown, 1, 10), c("9999-12-31", "9999-12-31", "0001-01-01", "1970-01-01"))
  far <- structure(c(1e15, -Inf), class = c("POSIXct", "POSIXt"), tzone = "UTC")
  expect_length(as_data_frame(as_pandas(data.frame(when = far)))$when, 2)
})

test_that("types say nothing about values", {
  skip_without_python()
  types <- function(data) {
    reticulate::py_to_r(as_pandas(data)$dtypes$astype("str")$tolist())
  }
  full <- people()
  full$name <- "a"
  gaps <- full
  gaps[3, ] <- NA
  expect_identical(types(gaps), types(full))
  expect_identical(types(full[1, ]), types(full))
})

test_that("columns of other classes are named", {
  skip_without_python()
  df <- people()
  df$wait <- as.difftime(df$visits, units = "days")
  expect_error(dp_ate(y ~ t, df, epsilon = 1, bounds = BOUNDS["y"]), "`wait` is of class difftime")
  df$wait <- as.list(df$visits)
  expect_error(dp_ate(y ~ t, df, epsilon = 1, bounds = BOUNDS["y"]), "`wait` is of class list")
  names(df)[8] <- "y"
  expect_error(dp_ate(y ~ t, df, epsilon = 1), "two columns named `y`")
})

test_that("levels of a factor are not taken as declared", {
  skip_without_python()
  df <- people()
  expect_error(
    dp_ate(y ~ t | region, df, epsilon = 1, bounds = list(y = c(0, 1))), "region",
    class = "BoundsError"
  )
  expect_error(
    dp_ate(y ~ t, df, epsilon = 1, bounds = list(y = c(0, 1), region = df$region)), "learnt"
  )
})

test_that("bounds are ranges, levels and dates", {
  skip_without_python()
  shown <- function(x) reticulate::py_repr(as_bounds(x))
  expect_identical(
    shown(list(y = c(0, 1), age = c(18.5, 90), g = c("a", "b"), k = list(1, 2), three = 1:3)),
    "{'y': (0, 1), 'age': (18.5, 90), 'g': ['a', 'b'], 'k': [1, 2], 'three': [1, 2, 3]}"
  )
  expect_identical(shown(list(visits = c(0L, 30L), a = 1:2)), "{'visits': range(0, 31), 'a': range(1, 3)}")
  expect_identical(shown(BOUNDS["day"]), "{'day': ('2020-01-01', '2021-12-31')}")
  expect_identical(shown(list(day = format(BOUNDS$day))), shown(BOUNDS["day"]))
  levels <- list(g = list("2020-01-01", "2020-02-01"))
  expect_identical(shown(levels), "{'g': ['2020-01-01', '2020-02-01']}")
  expect_identical(shown(list(t = c(FALSE, TRUE))), "{'t': [False, True]}")
  expect_error(as_bounds(list(c(0, 1))), "bounds have names")
  expect_error(as_bounds(list(y = c(0, NA))), "NA is no bound")
})
