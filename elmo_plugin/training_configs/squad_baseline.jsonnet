// Question answering on SQuAD 1.1 without ELMo: the baseline of squad.jsonnet. Nothing else differs. Not run here.
// The paper (tables 1 and 2) reports F1 80.8 on dev and 81.1 on the hidden test set.
local elmo = import 'lib/elmo.libsonnet';

(import 'squad.jsonnet') + { model+: { text_encoder+: { elmo: elmo.part('none') } } }
