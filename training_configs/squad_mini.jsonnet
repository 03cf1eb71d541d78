// Question answering for use, on two CPU cores: as squad_small.jsonnet, but ELMo is the only input, so the archive is
// small, with a wider task RNN and longer passages. Four minutes an epoch. Made into the task model elmo_squad_mini by
// scripts/task_model.sh.
//
//   export SQUAD_DATA=...    a folder with train-v1.1.json and dev-v1.1.json
//   export ELMO=elmo_mini    a biLM that comes with this package, or a folder with options.json and weights.hdf5
//   allennlp train training_configs/squad_mini.jsonnet -s runs/squad_mini --include-package elmo_plugin
local elmo = import 'lib/elmo.libsonnet';
local squad = import 'lib/squad.libsonnet';

local reader = { token_indexers: elmo.indexers };

squad.experiment(
  data=squad.files(std.extVar('SQUAD_DATA'), 'train-v1.1.json', 'dev-v1.1.json'),
  elmo_part=elmo.part('both', bilm=elmo.named(std.extVar('ELMO')), dropout=0.2),
  word_vectors=null,
  rnn_size=60,
  max_passage_tokens=250,
  batch_size=32,
  optimizer={ type: 'adam', lr: 0.002 },
  average_decay=0.995,
  num_epochs=7,
  patience=3,
) + {
  dataset_reader+: reader,
  validation_dataset_reader+: reader,
  // No characters but ELMo's.
  vocabulary: {},
  model+: { text_encoder+: { text_field_embedder: null } },
}
