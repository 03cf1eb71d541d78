// Semantic role labeling on OntoNotes (CoNLL-2012) with ELMo at the input. Not run here.
// The paper (NAACL 2018, table 1) reports test F1 84.6, and 81.4 without ELMo (placement none); on dev 84.8
// and 81.6 (table 2). Dev F1 by place (table 3): input 84.7, both 84.3, output 80.9.
// AllenNLP's model: 84.9 (srl-model-2018.05.25).
//
//   export SRL_DATA=...       a folder with the folders train, development and test, each with *.gold_conll
//                             files somewhere below: CoNLL-2012's, with the words put in, English alone
//   export WORD_VECTORS=...   100-dimensional word vectors in GloVe's text format (file or URL)
//   allennlp train training_configs/srl.jsonnet -s runs/srl --include-package elmo_plugin
//
// The paper's data has 75,187, 9,603 and 9,479 sentences*: compare with what the reader counts.
//
// To move ELMo, change one word:
//   --overrides '{"model.text_encoder.elmo.placement": "both"}'     (input, output, both, none)
// Last layer only / lambda 1 (dev F1 in the paper: 84.1 / 84.6; with lambda 0.001, as here, 84.8):
//   --overrides '{"model.text_encoder.elmo.top_layer_only": true}'
//   --overrides '{"model.regularizer.regexes.0.1.alpha": 1.0}'
// Another seed: --overrides '{"random_seed": 1, "numpy_seed": 1, "pytorch_seed": 1}'
//
// Where the paper and AllenNLP's released config (semantic_role_labeler_elmo.jsonnet, v0.9.0) differ, this
// follows the paper (* from memory, not checked against the paper):
//   word vectors     paper: GloVe 100-d, tuned, and ELMo    AllenNLP: ELMo in place of GloVe
//   patience         paper: 200*, ELMo or not               AllenNLP: 200 with ELMo, 20 without
//   scorer           paper: srl-eval.pl, as counted here    AllenNLP: its own, 1 to 1.5 F1 lower
//   indicator        paper: not stated, one word here       AllenNLP: all words of the predicate's span
// Both: 8 alternating LSTM layers of 300, highway connections, recurrent dropout 0.1; 100-d predicate
// indicator; Adadelta, rho 0.95, lr 1.0*; gradient values clipped at 1.0; batch 80, 500 epochs*; orthogonal
// initial weights and forget biases of 1*; BIO tags, Viterbi decoding at evaluation. Lambda 0.001 and ELMo's
// dropout of 0.1 are the paper's. Words are lowercased, as GloVe's 6B vectors are.
// What differs from the paper: for most tasks it fine-tunes the biLM on the task's text, which did not improve its
// perplexity on CoNLL-2012*. Here the biLM is as published. For a fine-tuned one see bilm_finetune.jsonnet, and give
// its files as model.text_encoder.elmo.options_file and .weight_file.
local elmo = import 'lib/elmo.libsonnet';
local srl = import 'lib/srl.libsonnet';

srl.experiment(
  data=srl.files(std.extVar('SRL_DATA'), 'train', 'development', 'test'),
  elmo_part=elmo.part('input', dropout=0.1),
  word_vectors=std.extVar('WORD_VECTORS'),
) + {
  // As in AllenNLP's model, which is the paper's. PyTorch's start, which the small configs have, is seven
  // times as wide.
  model+: { initializer+: { regexes+: [['predicate_embedding.weight', { type: 'xavier_uniform' }]] } },
}
