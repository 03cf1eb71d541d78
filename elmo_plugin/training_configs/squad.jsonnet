// Question answering on SQuAD 1.1 with ELMo at the input and the output of the shared GRU. Not run here.
// The paper (NAACL 2018, tables 1 to 3) reports F1 85.6 on dev and 85.8 on the hidden test set, and 80.8 and 81.1
// without ELMo (placement none), one run each.
//
//   export SQUAD_DATA=...     a folder with train-v1.1.json and dev-v1.1.json
//   export WORD_VECTORS=...   300-dimensional word vectors, case kept: GloVe 840B (file or URL)
//   allennlp train training_configs/squad.jsonnet -s runs/squad --include-package elmo_plugin
//
// To move ELMo, change one word (dev F1 in the paper: input 85.1, output 84.8, both 85.6):
//   --overrides '{"model.text_encoder.elmo.placement": "input"}'     (input, output, both, none)
// Last layer only (dev F1 in the paper: 84.7); lambda 0.001 (85.2) or 1.0 (85.0):
//   --overrides '{"model.text_encoder.elmo.top_layer_only": true}'
//   --overrides '{"model.regularizer.regexes.0.1.alpha": 0.001}'
// Another seed: --overrides '{"random_seed": 1, "numpy_seed": 1, "pytorch_seed": 1}'
//
// The settings are those of the paper's authors' own code (docqa/elmo/ablate_elmo_model.py in
// allenai/document-qa). AllenNLP never released an ELMo model of this kind: its ELMo-BiDAF is Seo et al.'s
// BiDAF (two-layer LSTM instead of self-attention; 80 F1). Where this differs from the authors' code:
//   biLM                 theirs: fine-tuned on SQuAD's passages    here: as published; for the same, see
//                        bilm_finetune.jsonnet, and give its files as model.text_encoder.elmo.options_file
//                        and .weight_file
//   tokens               theirs: NLTK's, split further             here: spaCy's rules (elmo_rule_based)
//   unknown words        theirs: the vector in lowercase, else     here: random vectors, AllenNLP's way
//                        zeros
//   characters           theirs: first 14 of a word                here: all, with marks around them
//   their vectors        theirs: start uniform, within 0.05        here: Glorot, AllenNLP's way
//   character dropout    theirs: on the characters' vectors        here: on the convolutions' output
//   evaluated, saved     theirs: every 1,200 batches               here: every epoch (some 1,950 batches)
//   averaging            theirs: decay 0.999 from the start        here: min(0.999, (1 + n) / (10 + n)) after n
//                        batches, AllenNLP's way, the same after 9,000
//   attention weights    theirs: Glorot                            here: AllenNLP's uniform start
// Adadelta's rho 0.95 and epsilon 1e-8 are the defaults of TensorFlow's, which they use.
local elmo = import 'lib/elmo.libsonnet';
local squad = import 'lib/squad.libsonnet';

squad.experiment(
  data=squad.files(std.extVar('SQUAD_DATA'), 'train-v1.1.json', 'dev-v1.1.json'),
  elmo_part=elmo.part('both'),
  word_vectors=std.extVar('WORD_VECTORS'),
)
