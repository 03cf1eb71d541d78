// Coreference on OntoNotes (CoNLL-2012) with ELMo at the input. Not run here.
// The paper (NAACL 2018, table 1) reports 70.4 on test, the mean F1 of MUC, B-cubed and CEAF, and 67.2 without ELMo
// (placement none), one model each. AllenNLP's run without ELMo: 63.0.
//
//   export COREF_DATA=...     a folder with the folders train, development and test, which hold *.gold_conll
//   export WORD_VECTORS=...   300-dimensional word vectors in GloVe's text format (file or URL), case kept
//   allennlp train training_configs/coref.jsonnet -s runs/coref --include-package elmo_plugin
//
// To move ELMo, change one word (at the output too, scores fell for the paper's authors*):
//   --overrides '{"model.text_encoder.elmo.placement": "both"}'     (input, output, both, none)
// Last layer only; lambda 0.001 (or 1.0):
//   --overrides '{"model.text_encoder.elmo.top_layer_only": true}'
//   --overrides '{"model.regularizer.regexes.0.1.alpha": 0.001}'
// Another seed: --overrides '{"random_seed": 1, "numpy_seed": 1, "pytorch_seed": 1}'
//
// The model is that of Lee et al. (2017) with ELMo; what differs is said at the end. Where they and AllenNLP's
// released config (coref.jsonnet, v0.9.0) differ, this follows them (* from memory, not checked against the papers):
//   word vectors     paper: GloVe 840B 300-d and Turian 50-d, both frozen*    AllenNLP: GloVe 6B 300-d, frozen
//   characters       paper: 8-d, filters of widths 3, 4, 5, 50 of each*       AllenNLP: 100 of width 5
//   antecedents      paper: 250*                                              AllenNLP: 100
//   learning rate    paper: Adam 0.001, times 0.999 every 100 steps*          AllenNLP: Adam 0.001, halved
//                                                                             after 3 epochs not better
//   training         paper: 50 random sentences in a row of longer documents* AllenNLP: whole documents
//   pruning          paper: kept spans do not cross*                          AllenNLP: they may
//   speakers, genre  paper: features of pairs*                                AllenNLP: none
//   a span's head    paper: attention scored from the biLSTM's output         AllenNLP: from the embeddings
// Both: biLSTM of 200*; feed-forwards of 150 and 150*; spans of at most 10 words, 0.4 for each word*; features
// of width 20*; lexical dropout 0.5, 0.2 elsewhere*; gradient norm 5*; a document at each step*. 150 epochs and
// patience 10 are AllenNLP's; the paper trains 400,000 steps at most*. ELMo: lambda 0, no layer norm,
// dropout 0.5*, before the lexical dropout.
// What differs from Lee et al.: Turian's vectors are left out; unknown words have random vectors, not zeros;
// of GloVe's vectors only those longer than 1 are scaled to length 1; brackets are read as the files spell them, such
// as -LRB-, which text does not have so; words have marks around their characters
// (lib/words.libsonnet); the biLSTM has separate gates for input and
// forgetting where theirs couples them, starts from zeros where theirs learns its first state, and has dropout on
// its output, not within the recurrence too; lexical dropout drops other units for the spans' heads than for the
// biLSTM; the embedding of genres, the score of a head, the characters' filters and all biases start from PyTorch's
// own values, theirs from Glorot's.
// What differs from the ELMo paper: for most tasks it fine-tunes the biLM on the task's text, which did not improve
// its perplexity on CoNLL-2012*. Here the biLM is as published. For a fine-tuned one see bilm_finetune.jsonnet, and
// give its files as model.text_encoder.elmo.options_file and .weight_file.
// AllenNLP never released a config with ELMo.
local coref = import 'lib/coref.libsonnet';
local elmo = import 'lib/elmo.libsonnet';

coref.experiment(
  data=coref.files(std.extVar('COREF_DATA'), 'train', 'development', 'test'),
  elmo_part=elmo.part('input'),
  word_vectors=std.extVar('WORD_VECTORS'),
)
