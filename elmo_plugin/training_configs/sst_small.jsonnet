// Sentiment of sentences in five classes for a biLM of your own and two CPU cores: no pretrained word vectors, small
// layers, and training on the sentences alone (8,544 of them; sst.jsonnet trains on 93,703 phrases). Made for
// RESULTS.md; a starting point for your treebank.
//
//   export SST_DATA=...     a folder with train.txt, dev.txt and test.txt, one tree per line
//   export ELMO=elmo_mini   a biLM that comes with this package, or a folder with options.json and weights.hdf5
//   allennlp train training_configs/sst_small.jsonnet -s runs/sst_small --include-package elmo_plugin
//
// Without ELMo: --overrides '{"model.text_encoder.elmo.placement": "none"}'
// On phrases too: --overrides '{"dataset_reader.min_phrase_length": 4}'
//
// To train on fewer sentences shuffle train.txt and cut it. Do not use `max_instances`: the treebank's files are
// sorted, positive sentences first.
local elmo = import 'lib/elmo.libsonnet';
local sst = import 'lib/sst.libsonnet';

sst.experiment(
  data=sst.files(std.extVar('SST_DATA'), 'train.txt', 'dev.txt', 'test.txt'),
  elmo_part=elmo.part('both', bilm=elmo.named(std.extVar('ELMO')), dropout={ input: 0.0, output: 0.2 }),
  word_vectors=null,
  word_dim=50,
  train_word_vectors=true,
  lowercase=true,
  min_phrase_length=null,
  rnn_size=64,
  output_dims=[64, 32],
  output_dropout=[0.2, 0.2],
  pre_encode_dropout=0.0,
  batch_size=32,
  learning_rate=0.002,
  num_epochs=50,  // ends before: after `patience` epochs that are not better on dev
  patience=5,
)
