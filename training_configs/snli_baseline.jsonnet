// Natural-language inference on SNLI without ELMo: the baseline of snli.jsonnet, which differs in nothing else.
// Expected test accuracy: 88.0 (paper, table 1). The paper's baseline has neither the L2 on weight matrices nor
// the dropout after the attention, which came with ELMo; so it is with
//   --overrides '{"model.regularizer.regexes.1.1.alpha": 0.0, "model.attention_dropout": 0.0}'
local elmo = import 'lib/elmo.libsonnet';

(import 'snli.jsonnet') + { model+: { text_encoder+: { elmo: elmo.part('none') } } }
