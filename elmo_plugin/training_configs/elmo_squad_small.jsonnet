// The task model elmo_squad_small, which scripts/task_model.sh makes of this config on two CPU cores: question answering
// with ELMo as the only input, so that the archive is small.
//
// The number of epochs was chosen on the dev part, with training on the train part alone, when only the first answer to
// a question counted as right; then both are trained on.
//
//   export SQUAD_DATA=...    a folder with train-v1.1.json and dev-v1.1.json
//   export ELMO=elmo_small   a biLM that comes with this package, or a folder with options.json and weights.hdf5
//   allennlp train training_configs/elmo_squad_small.jsonnet -s runs/squad --include-package elmo_plugin
local elmo = import 'lib/elmo.libsonnet';
local squad = import 'lib/squad.libsonnet';

local file(name) = std.extVar('SQUAD_DATA') + '/' + name;

elmo.as_only_input(squad.experiment(
  data={ train: [file('train-v1.1.json'), file('dev-v1.1.json')] },
  // The layers of all passages are kept in memory: the process takes 4.7 GB.
  elmo_part=elmo.part('both', bilm=elmo.named(std.extVar('ELMO')), dropout=0.2) { sentence_cache_mb: 4000 },
  word_vectors=null,
  rnn_size=60,
  max_passage_tokens=250,
  batch_size=32,
  optimizer={ type: 'adam', lr: 0.002 },
  average_decay=0.995,
  num_epochs=5,
)) + {
  // The rate falls, to zero after 12 epochs: the fifth was the best.
  trainer+: { learning_rate_scheduler: { type: 'linear_with_warmup', warmup_steps: 100, num_epochs: 12 } },
}
