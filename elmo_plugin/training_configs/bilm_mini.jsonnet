// The first step of pretraining elmo_mini, a biLM that comes with this package: 2 layers of 512 cells projected to 128, 384
// character filters, on 12.9M of its 51.4M words, with 2 CPU cores. scripts/elmo_mini.sh has all steps,
// docs/results/bilms.md their results.
//
// bilm.jsonnet explains the variables. For a small corpus and little time this differs from the paper: one
// epoch; Adam, at a rate that falls; 2,048 sampled words for 8,192; one highway layer for two; products in
// bfloat16 if the processor has instructions for them; and rows that sometimes start from zeros
// (state_reset). After few updates a biLM that never starts from zeros can fail on single sentences.
local bilm = import 'lib/bilm.libsonnet';

bilm.experiment(
  train=std.extVar('LM_TRAIN'),
  heldout=std.extVar('LM_HELDOUT'),
  vocabulary=std.extVar('LM_VOCABULARY'),
  options=bilm.options(
    cell_size=512,
    projection_dim=128,
    num_highway=1,
    filters=[[1, 32], [2, 32], [3, 64], [4, 128], [5, 128]],
  ),
  softmax={ type: 'elmo_sampled', num_samples: 2048 },
  state_reset=0.05,
  precision='bfloat16',
  optimizer=bilm.adam(learning_rate=0.003),
  // Half-way to zero: elmo_mini's second training continues from there, on other text. If yours ends here, and for
  // more epochs, use linear_with_warmup, which decays to zero.
  learning_rate_scheduler={ type: 'polynomial_decay', warmup_steps: 200, power: 1, end_learning_rate: 0.0015 },
  num_epochs=1,
  checkpoint_batches=500,
)
