"""
The commands of `elmo`; `elmo embed` is `allennlp elmo`, too.

A module has `DESCRIPTION`, for the help; `run`, which does its work, and whose argument `options` is a
dataclass, from which the arguments of the command are made; and perhaps `USAGE`. What needs AllenNLP is
imported by `run`, so that help and errors in arguments are printed at once, also where AllenNLP is not
installed.
"""
