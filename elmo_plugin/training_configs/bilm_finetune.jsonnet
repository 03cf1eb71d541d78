// Adapting a pretrained biLM to the text of a domain, usually a small corpus, in one epoch.
//
//   export LM_START=...        what to start from: the archive of a pretraining run (model.tar.gz), a folder with
//                              options.json and weights.hdf5, or elmo_mini
//   export LM_TRAIN=...        files of training text, globs, separated by commas: one tokenized sentence per line
//   export LM_HELDOUT=...      files of held-out text of the same domain
//   export LM_VOCABULARY=...   the vocabulary of its softmax: vocab.txt from that folder, or elmo_mini
//   allennlp train training_configs/bilm_finetune.jsonnet -s runs/domain --include-package elmo_plugin
//   elmo export runs/domain/model.tar.gz runs/domain/export
//
// metrics_before.json in the run's folder has the perplexity before, metrics.json that of the best epoch.
//
// The published weights have no softmax. Then a softmax for any vocabulary is trained first, with the biLM frozen, and
// one epoch is too short. Set model.softmax_first (batches) and trainer.num_epochs.
local bilm = import 'lib/bilm.libsonnet';
local elmo = import 'lib/elmo.libsonnet';
local start = std.extVar('LM_START');

bilm.experiment(
  train=std.extVar('LM_TRAIN'),
  heldout=std.extVar('LM_HELDOUT'),
  vocabulary=std.extVar('LM_VOCABULARY'),
  options=null,
  softmax={ type: 'elmo_sampled', num_samples: 2048 },
  state_reset=0.05,
  // Small batches: a small corpus should give many updates.
  rows=32,
  heldout_rows=32,
  optimizer=bilm.adam(learning_rate=0.001),
  learning_rate_scheduler={ type: 'linear_with_warmup', warmup_steps: 20 },
  num_epochs=1,
) + {
  model+:
    if std.endsWith(start, '.tar.gz') then { archive_file: start }
    else elmo.named(start),
  trainer+: { callbacks: ['elmo_validate_first'] + super.callbacks },
}
