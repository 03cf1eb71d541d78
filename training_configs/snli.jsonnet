// Natural-language inference on SNLI with ELMo at the input and the output of ESIM's first biLSTM: the paper's
// experiment (NAACL 2018, section 4, table 1). Expected test accuracy: 88.7 +- 0.17 over 5 seeds; without ELMo
// (snli_baseline.jsonnet) 88.0. On dev: 89.5 and 88.1. AllenNLP's own run with ELMo: 88.5 on test.
//
//   export SNLI_DATA=...      a folder with snli_1.0_train.jsonl, snli_1.0_dev.jsonl and snli_1.0_test.jsonl
//   export WORD_VECTORS=...   300-dimensional word vectors in GloVe's text format (file or URL)
//   allennlp train training_configs/snli.jsonnet -s runs/snli --include-package elmo_plugin
//
// Moving ELMo is one word (dev accuracy in the paper: both 89.5, input 88.9, output 88.7):
//   --overrides '{"model.text_encoder.elmo.placement": "input"}'     (input, output, both, none)
// Last layer only / lambda 1 (dev accuracy in the paper: 89.1 / 89.3; with lambda 0.001, as here, 89.5):
//   --overrides '{"model.text_encoder.elmo.top_layer_only": true}'
//   --overrides '{"model.regularizer.regexes.0.1.alpha": 1.0}'
// Another seed: --overrides '{"random_seed": 1, "numpy_seed": 1, "pytorch_seed": 1}'
//
// Where the paper and AllenNLP's released config (esim_elmo.jsonnet, v0.9.0) differ, this follows the paper,
// as far as it is known (values marked * we have from memory of it only):
//   ELMo's place       paper: input and output               AllenNLP: input
//   ELMo's layers      paper: normalised*                    AllenNLP: not
//   lambda             paper: 0.001                          AllenNLP: no L2
//   L2 on weights      paper: 0.0001*, with ELMo only*       AllenNLP: none
//   after attention    paper: dropout 0.5*, with ELMo only*  AllenNLP: none
//   word vectors       paper: GloVe 300-d, fixed*            AllenNLP: none (without ELMo: GloVe 840B, tuned)
//   gradient norm      paper: 5*                             AllenNLP: 10
// Both: biLSTMs and relu layers of 300*; dropout 0.5, of the same units at all steps where a biLSTM reads*, and none
// of ELMo beside it (AllenNLP's; the paper does not say); batch 32*; Adam 0.0004*, halved after each epoch that is not the best so far on dev*. 75 epochs, patience 5 and the
// initial values of weights are AllenNLP's; the paper does not say. It does not say which GloVe vectors either:
// ESIM's authors take 840B with case kept, as here. The model that comes of it learns 8.0 million parameters, the
// number that the SNLI leaderboard has for the paper's.
//
// ELMo's layer normalisation takes its statistics from a batch, as in all implementations of ELMo: what is predicted
// of a pair depends, a little, on the pairs in the same batch.
local elmo = import 'lib/elmo.libsonnet';
local snli = import 'lib/snli.libsonnet';

snli.experiment(
  data=snli.files(
    std.extVar('SNLI_DATA'), 'snli_1.0_train.jsonl', 'snli_1.0_dev.jsonl', 'snli_1.0_test.jsonl'
  ),
  elmo_part=elmo.part('both', dropout=0.0) + { do_layer_norm: true },
  word_vectors=std.extVar('WORD_VECTORS'),
)
