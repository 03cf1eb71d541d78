// The task model elmo_ner_small, which scripts/task_model.sh makes of this config on two CPU cores: names in text of three
// kinds. WikiGold marks persons, locations, organizations and others (MISC); UniversalNER's English web text and WNUT
// 2017's social media, whose classes the script renames, all but the last: there MISC is possible where nothing is
// marked. Words that occur once count as unknown, so that names which it never saw have a vector that was trained.
//
// The number of epochs was chosen on the dev parts, with training on the train parts alone; then both are trained on.
//
//   export NER_DATA=...       a folder with the folders wikigold, uner_ewt and wnut17, of train.conll, dev.conll and test.conll
//   export ELMO=elmo_small    a biLM that comes with this package, or a folder with options.json and weights.hdf5
//   allennlp train training_configs/elmo_ner_small.jsonnet -s runs/ner --include-package elmo_plugin
local elmo = import 'lib/elmo.libsonnet';
local ner = import 'lib/ner.libsonnet';

local sources = ['wikigold', 'uner_ewt', 'wnut17'];
local of_all(name) = [std.extVar('NER_DATA') + '/' + source + '/' + name for source in sources];

ner.experiment(
  data={ train: of_all('train.conll') + of_all('dev.conll'), test: of_all('test.conll') },
  unmarked={ 'uner_ewt/*': ['MISC'], 'wnut17/*': ['MISC'] },
  elmo_part=elmo.part('input', bilm=elmo.named(std.extVar('ELMO')), dropout=0.0),
  word_vectors=null,
  rnn_sizes=[100],
  batch_size=16,
  learning_rate=0.003,
  num_epochs=5,
  patience=null,
) + {
  trainer+: { moving_average: { type: 'exponential', decay: 0.997 } },
}
