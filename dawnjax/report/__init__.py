"""The report: entries and runs on one HTML page that needs nothing else, and its tables as files.

`inputs` reads, `privacy` leaves out what names machines and people, `sections` says what the page
holds, `figures` draws, `page` writes. Nothing here imports JAX.
"""
