// Pretraining the paper's biLM (NAACL 2018, section 3.4) on the 1 Billion Word Benchmark: 2 layers of 4096 cells
// projected to 512, 2048 character filters, 793,471 words predicted, 10 epochs. Not run here. The paper reports a
// held-out perplexity of 39.7, the mean of forward and backward; bilm-tf's README says 3 GPUs for about two weeks.
//
//   export LM_TRAIN=...        files or globs of training text, separated by commas: one tokenized sentence per line
//   export LM_HELDOUT=...      held-out text, likewise
//   export LM_VOCABULARY=...   from: elmo vocab FILES... --min-count 3 --output vocab.txt (files separated by spaces)
//   allennlp train training_configs/bilm.jsonnet -s runs/bilm --include-package elmo_plugin
//   elmo export runs/bilm/model.tar.gz runs/bilm/export
//
// As bilm-tf trains: 128 streams of 20 words for each GPU, state carried across batches; sampled softmax with 8192
// negatives; Adagrad 0.2 with accumulator 1.0; gradients clipped at 10; dropout 0.1.
//
// What differs: one process updates the weights after 2,560 words, the paper's three GPUs after 7,680. With three, add
// --overrides '{"distributed": {"cuda_devices": [0, 1, 2]}}'.
local bilm = import 'lib/bilm.libsonnet';

bilm.experiment(
  train=std.extVar('LM_TRAIN'),
  heldout=std.extVar('LM_HELDOUT'),
  vocabulary=std.extVar('LM_VOCABULARY'),
  options=bilm.options(cell_size=4096, projection_dim=512, num_highway=2),
)
