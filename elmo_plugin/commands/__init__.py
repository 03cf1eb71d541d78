"""
The commands of `elmo`; `elmo embed` is `allennlp elmo`, too.

A module has `DESCRIPTION`, for the help; `OPTIONS`, the dataclass of the command's arguments; `run`, which
does its work; and perhaps `USAGE`. What needs AllenNLP is imported by `run`, so that help and errors in
arguments are printed at once, also where AllenNLP is not installed.
"""
