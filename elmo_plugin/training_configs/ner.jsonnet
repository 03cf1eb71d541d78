// Named entity recognition on CoNLL-2003 with ELMo at the input. Not run here.
// The paper (NAACL 2018, table 1) reports test F1 92.22 +- 0.10 over 5 seeds, and 90.15 without ELMo
// (placement none). AllenNLP's runs: 92.51 (one seed) and 89.91 +- 0.35.
//
//   export NER_DATA=...       a folder with eng.train, eng.testa and eng.testb
//   export WORD_VECTORS=...   50-dimensional word vectors in GloVe's text format (file or URL)
//   allennlp train training_configs/ner.jsonnet -s runs/ner --include-package elmo_plugin
//
// To move ELMo, change one word:
//   --overrides '{"model.text_encoder.elmo.placement": "both"}'     (input, output, both, none)
// Last layer only; lambda 0.001 (or 1.0):
//   --overrides '{"model.text_encoder.elmo.top_layer_only": true}'
//   --overrides '{"model.regularizer.regexes.0.1.alpha": 0.001}'
// Another seed: --overrides '{"random_seed": 1, "numpy_seed": 1, "pytorch_seed": 1}'
//
// Where the paper and AllenNLP's released config (ner_elmo.jsonnet, v0.9.0) differ, this follows the paper
// (* from memory, not checked against the paper):
//   word vectors     paper: 50-d Senna, tuned*              AllenNLP: GloVe 6B 50-d, tuned
//   task RNN         paper: biLSTM of 200, then of 100*     AllenNLP: two biLSTM layers of 200
//   dropout of 0.5   paper: variational, on the input of    AllenNLP: not variational, on the same inputs
//                    both biLSTMs*
// Both: characters 16-d, 128 filters of width 3, relu; CRF; Adam 0.001, constant; gradient norm 5; L2 0.1 on the
// mix weights. Batch 64, 75 epochs, patience 25, BIOUL tags, words in lowercase, dropout of 0.5 before the CRF, a
// CRF without start and end transitions, and no dropout of ELMo beside that of RNN inputs are AllenNLP's; the
// paper does not say.
// The loss here is the mean over the sentences of a batch, AllenNLP's is the sum: lambda 0.1 weighs more here (the
// paper found NER insensitive to it), and a gradient norm of 5 clips less.
// What differs from the paper: words have marks around their characters, so that no word is shorter than a filter
// (lib/words.libsonnet); and for most tasks the paper fine-tunes the biLM on the task's text. Here the biLM is as
// published. For a fine-tuned one see bilm_finetune.jsonnet, and give its files as
// model.text_encoder.elmo.options_file and .weight_file.
local elmo = import 'lib/elmo.libsonnet';
local ner = import 'lib/ner.libsonnet';

ner.experiment(
  data=ner.files(std.extVar('NER_DATA'), 'eng.train', 'eng.testa', 'eng.testb'),
  elmo_part=elmo.part('input', dropout=0.0),
  word_vectors=std.extVar('WORD_VECTORS'),
)
