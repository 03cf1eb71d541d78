// Natural-language inference on SNLI with ELMo at the input and the output of ESIM's first biLSTM. Not run here.
// The paper (NAACL 2018, table 1) reports test accuracy 88.7 +- 0.17 over 5 seeds, and 88.0 without ELMo
// (placement none); on dev 89.5 and 88.1. AllenNLP's run with ELMo: 88.5 on test. The paper's baseline had neither the
// L2 on weight matrices nor the dropout after the attention*:
//   --overrides '{"model.text_encoder.elmo.placement": "none", "model.regularizer.regexes.1.1.alpha": 0.0,
//                 "model.attention_dropout": 0.0}'
//
//   export SNLI_DATA=...      a folder with snli_1.0_train.jsonl, snli_1.0_dev.jsonl and snli_1.0_test.jsonl
//   export WORD_VECTORS=...   300-dimensional word vectors in GloVe's text format (file or URL)
//   allennlp train training_configs/snli.jsonnet -s runs/snli --include-package elmo_plugin
//
// To move ELMo, change one word (dev accuracy in the paper: both 89.5, input 88.9, output 88.7):
//   --overrides '{"model.text_encoder.elmo.placement": "input"}'     (input, output, both, none)
// Last layer only / lambda 1 (dev accuracy in the paper: 89.1 / 89.3; with lambda 0.001, as here, 89.5):
//   --overrides '{"model.text_encoder.elmo.top_layer_only": true}'
//   --overrides '{"model.regularizer.regexes.0.1.alpha": 1.0}'
// Another seed: --overrides '{"random_seed": 1, "numpy_seed": 1, "pytorch_seed": 1}'
//
// Where the paper and AllenNLP's released config (esim_elmo.jsonnet, v0.9.0) differ, this follows the paper
// (* from memory, not checked against the paper):
//   ELMo's place       paper: input and output               AllenNLP: input
//   ELMo's layers      paper: normalized*                    AllenNLP: not
//   lambda             paper: 0.001                          AllenNLP: no L2
//   L2 on weights      paper: 0.0001*, with ELMo only*       AllenNLP: none
//   after attention    paper: dropout 0.5*, with ELMo only*  AllenNLP: none
//   word vectors       paper: GloVe 300-d, fixed*            AllenNLP: none (without ELMo: GloVe 840B, tuned)
//   gradient norm      paper: 5*                             AllenNLP: 10
// Both: biLSTMs and relu layers of 300*; variational dropout 0.5 on the input of each biLSTM*; batch 32*; Adam
// 0.0004*, halved after each epoch without a better dev accuracy*. The paper does not give the number of epochs, the
// patience, the initial weights and ELMo's own dropout: 75, 5, these and none are AllenNLP's. Nor does it name the
// GloVe vectors: 840B, case kept, are those of ESIM's authors. The model has 8.0 million trained parameters, as many
// as the SNLI leaderboard gives for the paper's.
//
// ELMo's layer normalization takes its statistics from the batch, as in all implementations of ELMo. So a prediction
// depends slightly on the other pairs in its batch. The statistics include the sentence marks, as
// in AllenNLP; bilm-tf, the authors' own code, leaves them out.
//
// What differs from the paper: for most tasks, SNLI among them, it fine-tunes the biLM on the task's text. Here the
// biLM is as published. For a fine-tuned one see bilm_finetune.jsonnet, and give its files as
// model.text_encoder.elmo.options_file and .weight_file.
local elmo = import 'lib/elmo.libsonnet';
local snli = import 'lib/snli.libsonnet';

snli.experiment(
  data=snli.files(
    std.extVar('SNLI_DATA'), 'snli_1.0_train.jsonl', 'snli_1.0_dev.jsonl', 'snli_1.0_test.jsonl'
  ),
  elmo_part=elmo.part('both', dropout=0.0) + { do_layer_norm: true },
  word_vectors=std.extVar('WORD_VECTORS'),
)
