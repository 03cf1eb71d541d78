// Semantic role labeling for a small corpus, a biLM of your own, and two CPU cores: no pretrained word
// vectors, two LSTM layers of 100, and Adam, which learns faster than the paper's Adadelta.
// Made for RESULTS.md; a starting point for your language or domain.
//
// AllenNLP's alternating LSTM is slow, and the whole model runs once for each predicate. So a random share is read: 3,000
// of the 40,397 predicates of PropBank's web text, and three tenths of the others. To read all:
//   --overrides '{"dataset_reader.share": 1, "validation_dataset_reader.share": 1}'
//
//   export SRL_DATA=...       a folder with train.gold_conll, dev.gold_conll and test.gold_conll
//   export ELMO=elmo_mini     a biLM that comes with this package, or a folder with options.json and
//                             weights.hdf5
//   allennlp train training_configs/srl_small.jsonnet -s runs/srl_small --include-package elmo_plugin
//
// Without ELMo: --overrides '{"model.text_encoder.elmo.placement": "none"}'
local elmo = import 'lib/elmo.libsonnet';
local srl = import 'lib/srl.libsonnet';

srl.experiment(
  data=srl.files(std.extVar('SRL_DATA'), 'train.gold_conll', 'dev.gold_conll', 'test.gold_conll'),
  elmo_part=elmo.part('input', bilm=elmo.named(std.extVar('ELMO')), dropout=0.1),
  word_vectors=null,
  word_dim=50,
  predicate_dim=50,
  rnn_size=100,
  num_rnn_layers=2,
  optimizer={ type: 'adam', lr: 0.003 },
  batch_size=40,
  num_epochs=60,  // ends before: after `patience` epochs that are not better on dev
  patience=5,
  train_share=3000 / 40397,
  evaluation_share=0.3,
)
