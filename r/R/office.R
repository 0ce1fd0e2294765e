# Data sets of an office, which stand in the place of data frames.

#' Data of an office
#'
#' `dp_connect()` connects to an office that answers for data which nobody outside may see. A data
#' set of the office then stands in the place of the data frame in [dp_ate()] and the other calls:
#' the call is sent to the office, which answers under the policy of its steward and pays out of its
#' own privacy budget. The result is the same as that of a call on a data frame.
#'
#' The same call is one request: sent again, it gives the same answer and costs nothing more. A call
#' that waits for the approval of the steward is an error of the class `PendingError`; the same call
#' later gives the answer. A call that is refused is an error of the class `RefusalError`, and costs
#' nothing.
#'
#' What the office declares of its columns is taken for `bounds`, so that there are none to give; nor
#' can there be a `seed` or a `ledger`.
#'
#' `dp_plan(y ~ t, registry, epsilon = 1)` plans with the number of records and the bounds of a data
#' set.
#'
#' @param url Address of the office. It begins with `https://`, but for an office on the same machine.
#' @param token Your token, by default that in the environment variable `DPEFFECTS_TOKEN`.
#' @param ... `certificate`, the path of a certificate to trust, and `timeout`, for how many seconds a
#'   call waits for its answer.
#' @param x A data set of an office.
#' @param n Number of records to make up.
#' @return
#' * `dp_connect()`: the office; `office$registry` and `office[["registry"]]` are its data sets;
#' * `codebook()`: a data frame with what columns may hold and mean;
#' * `budget()`: a data frame with what is spent and left of the privacy budget;
#' * `requests()`: a data frame with what you have asked, and what has become of it;
#' * `made_up()`: records that are made up from the codebook alone, to try a script on.
#' @examples
#' \dontrun{
#' registry <- dp_connect("https://office.example")$registry
#' codebook(registry)
#' dp_ate(died ~ drug | age, registry, epsilon = 0.2)
#' dp_ate(died ~ drug | age, made_up(registry, 5000), epsilon = 0.2)
#' }
#' @export
dp_connect <- function(url, token = Sys.getenv("DPEFFECTS_TOKEN"), ...) {
  dpe()$connect(url, token = if (nzchar(token)) token, ...)
}

#' @rdname dp_connect
#' @export
codebook <- function(x) of_office(x, "codebook")()

#' @rdname dp_connect
#' @export
budget <- function(x) of_office(x, "budget")()

#' @rdname dp_connect
#' @export
requests <- function(x) of_office(x, "requests")()

#' @rdname dp_connect
#' @export
made_up <- function(x, n = 1000) of_office(x, "made_up")(n)

OFFICE <- "dpeffects.services.connect.Office"
IN_OFFICE <- "dpeffects.services.connect.RemoteDataset"

of_office <- function(x, name) {
  if (!inherits(x, IN_OFFICE)) {
    refuse(name, "() is for a data set of an office, as dp_connect(url)$registry")
  }
  part(x, name)
}
