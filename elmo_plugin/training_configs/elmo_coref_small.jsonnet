// The task model elmo_coref_small, which scripts/task_model.sh makes of this config on two CPU cores: coreference with
// ELMo as the only input, so that the archive is small.
//
// The number of epochs was chosen on the dev part, with training on the train part alone; then both are trained on.
//
//   export COREF_DATA=...     a folder with train.gold_conll, dev.gold_conll and test.gold_conll
//   export ELMO=elmo_small    a biLM that comes with this package, or a folder with options.json and weights.hdf5
//   allennlp train training_configs/elmo_coref_small.jsonnet -s runs/coref --include-package elmo_plugin
local coref = import 'lib/coref.libsonnet';
local elmo = import 'lib/elmo.libsonnet';

local file(name) = std.extVar('COREF_DATA') + '/' + name;

elmo.as_only_input(coref.experiment(
  data={ train: [file('train.gold_conll'), file('dev.gold_conll')], test: file('test.gold_conll') },
  // The layers of all documents are kept in memory: the process takes 3 GB.
  elmo_part=elmo.part('input', bilm=elmo.named(std.extVar('ELMO')), dropout=0.0) { sentence_cache_mb: 2000 },
  word_vectors=null,
  rnn_size=100,
  feedforward_dims=[100],
  // Links over a whole document of 2,000 words, with 0.4 spans for each: of the links to the nearest mention, 5 % are over
  // more than 250 words.
  max_antecedents=800,
  max_training_sentences=25,
  learning_rate=0.002,
  // The rate falls, to zero after 20 epochs: the eleventh was the best.
  learning_rate_scheduler={ type: 'linear_with_warmup', warmup_steps: 80, num_epochs: 20 },
  num_epochs=11,
  patience=null,
)) + {
  // Evaluation and the archive have the averages of the weights.
  trainer+: { moving_average: { type: 'exponential', decay: 0.995 } },
}
