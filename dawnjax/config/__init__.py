"""The request of a command line: experiments and run options as typed fields, a flag each."""
