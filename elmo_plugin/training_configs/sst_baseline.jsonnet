// Sentiment of sentences in five classes without ELMo: the baseline of sst.jsonnet. Nothing else differs. Not run
// here. The paper (table 1) reports test accuracy 51.4.
local elmo = import 'lib/elmo.libsonnet';

(import 'sst.jsonnet') + { model+: { text_encoder+: { elmo: elmo.part('none') } } }
