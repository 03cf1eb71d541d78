// Named entity recognition for a small corpus, a biLM of your own, and two CPU cores: no pretrained word
// vectors, a small task RNN. Made for RESULTS.md; a starting point for your language or domain.
//
//   export NER_DATA=...       a folder with train.conll, dev.conll and test.conll
//   export ELMO=elmo_mini     a biLM that comes with this package, or a folder with options.json and weights.hdf5
//   allennlp train training_configs/ner_small.jsonnet -s runs/ner_small --include-package elmo_plugin
//
// Without ELMo: --overrides '{"model.text_encoder.elmo.placement": "none"}'
local elmo = import 'lib/elmo.libsonnet';
local ner = import 'lib/ner.libsonnet';

ner.experiment(
  data=ner.files(std.extVar('NER_DATA'), 'train.conll', 'dev.conll', 'test.conll'),
  elmo_part=elmo.part('input', bilm=elmo.named(std.extVar('ELMO')), dropout=0.0),
  word_vectors=null,
  rnn_sizes=[100],
  batch_size=16,
  learning_rate=0.003,
  num_epochs=100,  // ends before: after `patience` epochs that are not better on dev
  patience=5,
)
