"""
The commands of `elmo`, most of which are subcommands of `allennlp` too.

A module has two functions: `add_arguments` declares the command's arguments, and `run` does its work. What
needs AllenNLP is imported by `run`, so that help and errors in arguments are printed at once, also where
AllenNLP is not installed.
"""
