"""The report: entries and runs on one self-contained HTML page, and its tables as files.

`inputs` reads, `contents` orders the sections, `writing` writes. No JAX here.
"""
