// Question answering for a small corpus, a biLM of your own, and two CPU cores: no pretrained word vectors, a
// small task RNN, Adam. Made for RESULTS.md; a starting point for your language or domain.
//
//   export SQUAD_DATA=...    a folder with train.json and dev.json, in the form of SQuAD 1.1
//   export ELMO=elmo_mini    a biLM that comes with this package, or a folder with options.json and weights.hdf5
//   allennlp train training_configs/squad_small.jsonnet -s runs/squad_small --include-package elmo_plugin
//
// On 991 questions an epoch takes about 50 seconds of one core.
//
// Without ELMo: --overrides '{"model.text_encoder.elmo.placement": "none"}'
local elmo = import 'lib/elmo.libsonnet';
local squad = import 'lib/squad.libsonnet';

squad.experiment(
  data=squad.files(std.extVar('SQUAD_DATA'), 'train.json', 'dev.json'),
  elmo_part=elmo.part('both', bilm=elmo.named(std.extVar('ELMO'))),
  word_vectors=null,
  word_dim=50,
  character_dim=16,
  num_character_filters=50,
  character_min_count=1,
  rnn_size=40,
  max_passage_tokens=200,
  batch_size=16,
  optimizer={ type: 'adam', lr: 0.003 },
  average_decay=0.98,
  num_epochs=40,  // ends before: after `patience` epochs that are not better on dev
  patience=4,
)
