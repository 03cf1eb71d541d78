// Coreference for a small corpus, a biLM of your own, and two CPU cores: no pretrained word vectors, small
// widths, 25 sentences of a document at a time in training. Made for RESULTS.md; a starting point for
// your language or domain. An epoch of 80 documents of 2,000 words takes one to three minutes
// of one core.
//
//   export COREF_DATA=...     a folder with train.gold_conll, dev.gold_conll and test.gold_conll
//   export ELMO=elmo_mini     a biLM that comes with this package, or a folder with options.json and weights.hdf5
//   allennlp train training_configs/coref_small.jsonnet -s runs/coref_small --include-package elmo_plugin
//
// Without ELMo: --overrides '{"model.text_encoder.elmo.placement": "none"}'
local coref = import 'lib/coref.libsonnet';
local elmo = import 'lib/elmo.libsonnet';

coref.experiment(
  data=coref.files(std.extVar('COREF_DATA'), 'train.gold_conll', 'dev.gold_conll', 'test.gold_conll'),
  // The layers of the documents, 1.2 GB with elmo_small for 190,000 words, are read again in each epoch.
  elmo_part=elmo.part('input', bilm=elmo.named(std.extVar('ELMO'))) { sentence_cache_mb: 2000 },
  word_vectors=null,
  word_dim=50,
  num_character_filters=20,
  rnn_size=64,
  feedforward_dims=[64],
  max_training_sentences=25,
  learning_rate=0.002,
  learning_rate_scheduler=null,
  num_epochs=60,  // ends before: after `patience` epochs that are not better on dev
  patience=5,
)
