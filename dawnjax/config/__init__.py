"""What a command line asks for: experiments and run options as typed fields, a flag each."""
