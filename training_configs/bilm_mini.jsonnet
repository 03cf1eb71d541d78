// Pretraining elmo_mini, the biLM that comes with this package: 2 layers of 512 cells projected to 128, 384 character
// filters, on 12.9M words with 2 CPU cores. scripts/elmo_mini.sh has all steps, RESULTS.md tells what came of them.
//
// A small corpus and little time ask for another way to train than the paper's (see bilm.jsonnet, also for the
// variables): Adam learns more from each word than Adagrad, products are made in bfloat16 where the processor has
// instructions for them, and rows start anew now and then, since few updates do not teach a biLM to live with states
// that never do.
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
  optimizer={ type: 'adam', lr: 0.003 },
  // Half-way to zero: a second training goes on from there, on other text. For one that ends here, and for more epochs,
  // linear_with_warmup goes down to zero.
  learning_rate_scheduler={ type: 'polynomial_decay', warmup_steps: 200, power: 1, end_learning_rate: 0.0015 },
  num_epochs=1,
  checkpoint_batches=500,
)
