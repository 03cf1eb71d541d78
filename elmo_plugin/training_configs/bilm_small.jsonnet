// Pretraining a biLM of elmo_small's sizes: 2 layers of 1024 cells projected to 256, 1024 character filters, 11.9 million
// parameters without the softmax. Otherwise as bilm_mini.jsonnet. elmo_small itself was made from elmo_mini, in the steps
// of scripts/elmo_small.sh.
local bilm = import 'lib/bilm.libsonnet';

(import 'bilm_mini.jsonnet') + {
  model+: {
    options: bilm.options(
      cell_size=1024,
      projection_dim=256,
      num_highway=1,
      filters=[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512]],
    ),
  },
  trainer+: { optimizer+: { lr: 0.002 }, learning_rate_scheduler+: { end_learning_rate: 0.001 } },
}
