// Sentiment of sentences in five classes on the Stanford Sentiment Treebank with ELMo at the input and the output
// of the biLSTM. Not run here. The paper (NAACL 2018, table 1) reports test accuracy 54.7 +- 0.5 over 5 seeds, and
// 51.4 without ELMo (placement none). AllenNLP's runs, one seed each: 54.7 and 51.3; a user of theirs got 53.2.
//
//   export SST_DATA=...       a folder with train.txt, dev.txt and test.txt, one tree per line
//   export WORD_VECTORS=...   300-dimensional GloVe 840B in its text format (file or URL)
//   allennlp train training_configs/sst.jsonnet -s runs/sst --include-package elmo_plugin
//
// To move ELMo, change one word:
//   --overrides '{"model.text_encoder.elmo.placement": "input"}'     (input, output, both, none)
// Last layer only / lambda 1:
//   --overrides '{"model.text_encoder.elmo.top_layer_only": true}'
//   --overrides '{"model.regularizer.regexes.0.1.alpha": 1.0}'
// Another seed: --overrides '{"random_seed": 1, "numpy_seed": 1, "pytorch_seed": 1}'
// Two classes, without the neutral ones:
//   --overrides '{"dataset_reader.granularity": "2-class", "validation_dataset_reader.granularity": "2-class"}'
//
// Where the paper and AllenNLP's released config (biattentive_classification_network_elmo.jsonnet, v0.9.0) differ,
// this follows the paper (all of the column "paper" is from memory, not checked against the paper):
//   last layers      paper: two relu layers                 AllenNLP: maxout of 1200, 600 and 5, pool of 4
//   training data    paper: phrases of 4 words and more     AllenNLP: all phrases
//   optimizer        paper: Adam 0.0001                     AllenNLP: Adam 0.001
//   ELMo             paper: input and output of the biLSTM  AllenNLP: input (v0.5.0: also behind the integrator)
//   lambda           paper: 0.001                           AllenNLP: none
//   ELMo's dropout   paper: not stated; 0.5 at the output,  AllenNLP: 0 (v0.5.0: 0.5)
//                    at the input that of all embedded words
// Both: GloVe 840B, not tuned; relu layer of 300 before the biLSTM of 300; integrating biLSTM of 300; pooling in
// four ways. The paper does not say, and these are AllenNLP's: batches of 100, 40 epochs, patience 5, gradient norm
// 5; dropout of 0.5 on the embedded words, 0.1 on the pooled sentence, 0.2 and 0.3 in the last layers, whose widths
// of 1200 and 600 are its maxout's; 0.25 behind the first relu layer.
// Ours: words are spelled as in running text (see read_phrases); relu layers are initialized as in He et al. (2015).
// What differs from the paper: for most tasks it fine-tunes the biLM on the task's text, for sentiment without
// effect. Here the biLM is as published. For a fine-tuned one see bilm_finetune.jsonnet, and give its files as
// model.text_encoder.elmo.options_file and .weight_file.
local elmo = import 'lib/elmo.libsonnet';
local sst = import 'lib/sst.libsonnet';

sst.experiment(
  data=sst.files(std.extVar('SST_DATA'), 'train.txt', 'dev.txt', 'test.txt'),
  elmo_part=elmo.part('both', dropout={ input: 0.0, output: 0.5 }),
  word_vectors=std.extVar('WORD_VECTORS'),
)
