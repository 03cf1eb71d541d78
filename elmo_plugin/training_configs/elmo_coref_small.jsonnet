// The task model elmo_coref_small, which scripts/task_model.sh makes of this config on two CPU cores: coreference with
// ELMo as the only input, so that the archive is small.
//
//   export COREF_DATA=...     a folder with train.gold_conll, dev.gold_conll and test.gold_conll
//   export ELMO=elmo_small    a biLM that comes with this package, or a folder with options.json and weights.hdf5
//   allennlp train training_configs/elmo_coref_small.jsonnet -s runs/coref --include-package elmo_plugin
local coref = import 'lib/coref.libsonnet';
local elmo = import 'lib/elmo.libsonnet';

local reader = { token_indexers: elmo.indexers };

coref.experiment(
  data=coref.files(std.extVar('COREF_DATA'), 'train.gold_conll', 'dev.gold_conll', 'test.gold_conll'),
  elmo_part=elmo.part('input', bilm=elmo.named(std.extVar('ELMO')), dropout=0.0),
  word_vectors=null,
  rnn_size=100,
  feedforward_dims=[100],
  max_antecedents=100,
  max_training_sentences=25,
  learning_rate=0.002,
  learning_rate_scheduler={ type: 'reduce_on_plateau', mode: 'max', factor: 0.5, patience: 1 },
  num_epochs=25,
  patience=5,
) + {
  dataset_reader+: reader,
  model+: { text_encoder+: { text_field_embedder: null } },
}
