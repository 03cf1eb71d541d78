// Sentiment of sentences in five classes without ELMo: the baseline of sst.jsonnet, which differs in nothing else.
// Expected test accuracy: 51.4 (paper, table 1).
local elmo = import 'lib/elmo.libsonnet';

(import 'sst.jsonnet') + { model+: { text_encoder+: { elmo: elmo.part('none') } } }
