// kafkajs: the client that most of Node uses.
'use strict'

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
const harness = require('./harness')
const { startMember } = require('./client')
const { serveSteady } = require('./steady')
require('./records')
require('./groups')
require('./admin')
require('./restarts')

harness.main(require('kafkajs/package.json').version, startMember, serveSteady)
