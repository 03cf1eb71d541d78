// Pretraining a biLM of the small released shape: 2 layers of 1024 cells projected to 128, 2048 character filters,
// 1 highway layer, 13.6M parameters without the softmax. Otherwise as bilm.jsonnet. No perplexity was published, and it
// was not run here.
local bilm = import 'lib/bilm.libsonnet';

(import 'bilm.jsonnet') + {
  model+: { options: bilm.options(cell_size=1024, projection_dim=128, num_highway=1) },
}
