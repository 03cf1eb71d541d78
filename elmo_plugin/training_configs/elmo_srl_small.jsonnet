// The task model elmo_srl_small, which scripts/task_model.sh makes of this config on two CPU cores: semantic role
// labeling with all predicates of the training data, of a model that finds the predicates of a sentence itself. ELMo is
// its only input, so that the archive is small.
//
// Two bidirectional LSTM layers of torch in place of the paper's eight alternating ones, which take many times as long.
//
// The number of epochs was chosen on the dev part, with training on the train part alone; then both are trained on, and
// the rate, with no dev part left to halve it by, falls to zero.
//
//   export SRL_DATA=...       a folder with train.gold_conll, dev.gold_conll and test.gold_conll
//   export ELMO=elmo_small    a biLM that comes with this package, or a folder with options.json and
//                             weights.hdf5
//   allennlp train training_configs/elmo_srl_small.jsonnet -s runs/srl --include-package elmo_plugin
local elmo = import 'lib/elmo.libsonnet';
local srl = import 'lib/srl.libsonnet';

local file(name) = std.extVar('SRL_DATA') + '/' + name;

elmo.as_only_input(srl.experiment(
  data={ train: [file('train.gold_conll'), file('dev.gold_conll')], test: file('test.gold_conll') },
  // The layers of all sentences are kept in memory: the process takes 3.7 GB.
  elmo_part=elmo.part('input', bilm=elmo.named(std.extVar('ELMO')), dropout=0.2) { sentence_cache_mb: 3000 },
  word_vectors=null,
  predicate_dim=50,
  optimizer={ type: 'adam', lr: 0.002 },
  batch_size=64,
  num_epochs=8,
  patience=null,
)) + {
  dataset_reader+: { with_all_sentences: true },
  validation_dataset_reader+: { with_all_sentences: true },
  model+: {
    finder_dim: 100,
    text_encoder+: {
      encoder: { type: 'lstm', hidden_size: 200, num_layers: 2, bidirectional: true, dropout: 0.2 },
    },
  },
  trainer+: {
    // Evaluation and the archive have the averages of the weights.
    moving_average: { type: 'exponential', decay: 0.998 },
    // The rate falls to zero in the last step.
    learning_rate_scheduler: { type: 'linear_with_warmup', warmup_steps: 100 },
  },
}
