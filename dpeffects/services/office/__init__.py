"""An office that answers questions for data that researchers may not see.

The second door to the gate (`dpeffects.services.gate`), over HTTP: researchers ask, stewards
approve, the ledger of the data pays, and each question has one answer. `office_folder` is what an
office is on disk, `database` its accounts and requests, `desk` what may be asked and who decides,
`answering` the processes that hold the data, `web` and `pages` what is sent, `office_commands` what
an operator types.
"""
