// Pretraining elmo_mini, the biLM that comes with this package: 2 layers of 512 cells projected to 128, 384 character
// filters, on 12.9M words with 2 CPU cores. See bilm.jsonnet for the variables and the commands; RESULTS.md tells what
// came of it.
//
// A small corpus and little time ask for another way to train than the paper's: Adam learns more from each word than
// Adagrad, products are made in bfloat16, and rows start anew now and then, since few updates do not teach a biLM to
// live with states that never do.
local bilm = import 'lib/bilm.libsonnet';

bilm.experiment(
  // Files or globs, separated by commas.
  train=std.split(std.extVar('LM_TRAIN'), ','),
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
  learning_rate_scheduler={ type: 'linear_with_warmup', warmup_steps: 200 },
  num_epochs=3,
  checkpoint_batches=500,
)
